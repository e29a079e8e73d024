package participant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

func TestEffectsOfStatements(t *testing.T) {
	t.Parallel()
	const ends, sets, session = participant.EndsTransaction, participant.Sets, participant.Sets | participant.SetsSession
	for sql, want := range map[string]participant.Effect{
		"":                                  0,
		"SELECT 1":                          0,
		"INSERT INTO t VALUES ('; COMMIT')": 0,
		"SELECT 'it''s; commit', E'\\'; COMMIT', \"; end\"": 0,
		"SELECT $$; COMMIT;$$, $a$; COMMIT; $$ $a$":         0,
		"DO $$ BEGIN PERFORM 1; END $$":                     0,
		"SELECT CASE WHEN a THEN 1 END":                     0,
		"-- COMMIT\nSELECT 1":                               0,
		"/* ; /* COMMIT */ ; COMMIT */ SELECT 1":            0,
		"SAVEPOINT s":                                       0,
		"RELEASE SAVEPOINT s":                               0,
		"ROLLBACK TO s":                                     0,
		"rollback work to savepoint s":                      0,
		"PREPARE p AS SELECT 1":                             0,
		"UPDATE t SET a = 1":                                0,
		"SELECT $1; SELECT $2":                              0,
		"COMMIT":                                            ends,
		" \n/* x */ commit":                                 ends,
		"COMMIT AND CHAIN":                                  ends,
		"SELECT 1; COMMIT":                                  ends,
		"SELECT '''';END":                                   ends,
		"SELECT E'\\'';END":                                 ends,
		"SELECT $1;rollback":                                ends,
		"ROLLBACK -- to s\n":                                ends,
		"BEGIN":                                             ends,
		"START TRANSACTION":                                 ends,
		"PREPARE TRANSACTION 'x'":                           ends,
		"SET LOCAL a.b = 1":                                 sets,
		"set/**/local role x":                               sets,
		"SET CONSTRAINTS ALL DEFERRED":                      sets,
		"SET a.b = 1":                                       session,
		"SELECT 1; SET ROLE x":                              session,
		"RESET ALL":                                         session,
		"SELECT set_config('a.b', 'x,)', TRUE), 1":          sets,
		"SELECT set_config($1, f(a, b), is_local => true)":  sets,
		"SELECT SET_CONFIG ('a.b', $1, $2)":                 session,
		"SELECT set_config('a.b', 'true', false)":           session,
		"SELECT 'set_config'":                               0,
	} {
		require.Equal(t, want, participant.EffectsOf(sql), sql)
	}
}

func FuzzEffectsOf(f *testing.F) {
	for _, sql := range []string{"", "'", "E'\\", "$a$", "/*", "set_config(", "SET", "ROLLBACK WORK TO", "\"", "$", ";;", "a$b$"} {
		f.Add(sql)
	}
	f.Fuzz(func(_ *testing.T, sql string) { participant.EffectsOf(sql) })
}
