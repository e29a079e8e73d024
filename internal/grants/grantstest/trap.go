package grantstest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// functions fit calls of Troupe's statements better than the functions of pg_catalog with these names, which take any type. Each
// records the role that runs it.
const functions = `
CREATE TABLE public.trapped (role text NOT NULL, function text NOT NULL);
GRANT INSERT ON public.trapped TO PUBLIC;
CREATE FUNCTION public.note(function text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  RAISE WARNING 'trapped: % runs %', current_user, function;
  INSERT INTO public.trapped VALUES (current_user, function);
END $$;
CREATE FUNCTION public.gather(text[], text) RETURNS text[] LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN PERFORM public.note('array_agg'); RETURN coalesce($1, '{}') || $2; END $$;
CREATE AGGREGATE public.array_agg(text) (sfunc = public.gather, stype = text[]);
CREATE FUNCTION public.to_jsonb(pg_catalog.pg_replication_slots) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN PERFORM public.note('to_jsonb'); RETURN row_to_json($1)::jsonb; END $$;
CREATE FUNCTION public.concat_ws(text, uuid, integer, bigint) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN PERFORM public.note('concat_ws'); RETURN concat_ws($1, $2, $3, $4); END $$;
CREATE FUNCTION public.concat_ws(text, text, text, text, text) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN PERFORM public.note('concat_ws'); RETURN concat_ws($1, $2, $3, $4, $5); END $$;
CREATE FUNCTION public.format(text, text, bigint, bigint) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN PERFORM public.note('format'); RETURN format($1, $2, $3, $4); END $$;
CREATE FUNCTION public.cardinality(integer[]) RETURNS integer LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN PERFORM public.note('cardinality'); RETURN cardinality($1); END $$;
CREATE FUNCTION public.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN PERFORM public.note('unnest'); RETURN QUERY SELECT unnest($1); END $$;`

// Trap sets traps in the schema public of db, as every role can in Postgres 14, and in a database that was upgraded from it. It
// returns a function that lists the other roles that have run one, each with the trap's name.
func Trap(t testing.TB, db interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	QueryRow(context.Context, string, ...any) pgx.Row
}) func() []string {
	t.Helper()
	_, err := db.Exec(context.Background(), functions)
	require.NoError(t, err)
	return func() (ran []string) {
		t.Helper()
		require.NoError(t, db.QueryRow(context.Background(), `
			SELECT coalesce(pg_catalog.array_agg(DISTINCT (role || ' runs ' || function)::varchar), '{}')
			FROM public.trapped WHERE role <> current_user`).Scan(&ran))
		return ran
	}
}
