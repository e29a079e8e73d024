package console

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// No edge passes through a box: between layers it stays in the gap, and through a layer it stays in its own lane.
func TestNoEdgeCrossesABox(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		chance := rand.New(rand.NewPCG(seed, 7))
		n := 1 + chance.IntN(14)
		var edges [][2]int
		for to := 1; to < n; to++ {
			for from := range to {
				if chance.IntN(4) == 0 {
					edges = append(edges, [2]int{from, to})
				}
			}
		}
		p := layOut(n, edges)
		require.Len(t, p.boxes, n)
		require.Len(t, p.bends, len(edges))
		for i, a := range p.boxes {
			require.True(t, a.X >= 0 && a.Y >= 0 && a.X+a.Width <= p.width && a.Y+a.Height <= p.height, "seed %d: box %d is outside", seed, i)
			for j, b := range p.boxes[:i] {
				require.False(t, a.X < b.X+b.Width && b.X < a.X+a.Width && a.Y < b.Y+b.Height && b.Y < a.Y+a.Height, "seed %d: boxes %d and %d", seed, i, j)
			}
		}
		for e, bends := range p.bends {
			from, to := p.boxes[edges[e][0]], p.boxes[edges[e][1]]
			require.Equal(t, bend{from.X + boxWidth/2, from.Y + boxHeight}, bends[0])
			require.Equal(t, bend{to.X + boxWidth/2, to.Y}, bends[len(bends)-1])
			for i := 1; i < len(bends); i++ {
				a, b := bends[i-1], bends[i]
				require.Less(t, a.y, b.y, "seed %d: an edge goes up", seed)
				for k, box := range p.boxes {
					between := a.y >= box.Y+box.Height || b.y <= box.Y
					beside := a.x == b.x && (a.x <= box.X || a.x >= box.X+box.Width)
					require.True(t, between || beside, "seed %d: edge %d passes box %d", seed, e, k)
				}
			}
		}
	}
}

func TestNothingIsLaidOutToo(t *testing.T) {
	t.Parallel()
	require.Empty(t, layOut(0, nil).boxes)
}
