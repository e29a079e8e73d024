package plain_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/plain"
)

func TestControlCharactersAreNotPrinted(t *testing.T) {
	require.Equal(t, "a·[31mb·c·d·", plain.Line("a\x1b[31mb\nc\u202ed\x00", 20))
	require.Equal(t, "a·…", plain.Line("a\x1bb", 2))
	require.Equal(t, "a·\nb", plain.Lines("a\r\nb"))
	require.Equal(t, "José, 李, 😀", plain.Line("José, 李, 😀", 20))
}

func TestANameIsTextOfOneLine(t *testing.T) {
	for _, name := range []string{"ann", "José Ñandú", "李雷", "می\u200cخواهم", "ann@example.com", "👩‍🚒", "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f ann", "ᠬᠣᠲᠠ\u180eᠠ",
		"O'Neil-Smith, jr.", "e\u0301mile", "7", "😀", "कृष्ण"} {
		require.NoError(t, plain.CheckName(name), name)
	}
	for _, name := range []string{"ann\r\nbob", "ann\nbob", "ann\tbob", "ann\x1b[2J", "ann\x00", "ann\x7f", "ann\u009bm", "ann\u202ebob", "ann\u2066bob", "ann\u200ebob",
		"ann\u2028bob", "ann\u2029bob", "ann\ufeff", "\xff",
		"\u200c", "\u200d\u200d", "\u180e", "\u0301", "\u0301\u200d", " \u00a0", "\u3164", "\u2800", "\ufe0f", "...", "\u034f",
		"ann\U000e0067", "\U0001f3f4\U000e007f\U000e0067 ann", "ann\U000e0001", "ann\u00ad", ""} {
		require.Error(t, plain.CheckName(name), "%q", name)
	}
	require.NotContains(t, plain.CheckName("ann"+strings.Repeat("\n", 3)).Error(), "\n")
}
