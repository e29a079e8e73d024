package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Sizes in a drawing.
const (
	boxWidth  = 216
	boxHeight = 62
	laneWidth = 24 // the width of an edge that passes a layer
	gapX      = 28
	gapY      = 44
	edgeRoom  = 12 // around everything
)

type box struct{ X, Y, Width, Height int }

// plan has the positions of a drawing.
type plan struct {
	width, height int
	boxes         []box
	paths         []string
	bends         [][]bend // of the paths: straight through layers, curved between them
}

type bend struct{ x, y int }

// node is a position in a layer: a box, or the lane of an edge that passes the layer.
type node struct {
	box     int // -1: a lane
	layer   int
	place   float64 // within the order of its layer
	x       int     // x of its middle
	up, low []*node
}

func (n *node) width() int {
	if n.box < 0 {
		return laneWidth
	}
	return boxWidth
}

// layOut lays out a graph without cycles from top to bottom: each box is one layer below the lowest box that it follows, and
// an edge that passes layers has a lane of its own in each, so that none crosses a box.
func layOut(boxes int, edges [][2]int) plan {
	layers, ways := layered(boxes, edges)
	for range 4 { // more passes remove few more crossings
		order(layers, func(n *node) []*node { return n.up })
		slices.Reverse(layers)
		order(layers, func(n *node) []*node { return n.low })
		slices.Reverse(layers)
	}
	p := plan{boxes: make([]box, boxes)}
	for _, layer := range layers {
		p.width = max(p.width, widthOf(layer))
	}
	p.width += 2 * edgeRoom
	for i, layer := range layers {
		x, y := (p.width-widthOf(layer))/2, edgeRoom+i*(boxHeight+gapY)
		for _, n := range layer {
			n.x = x + n.width()/2
			x += n.width() + gapX
			if n.box >= 0 {
				p.boxes[n.box] = box{n.x - boxWidth/2, y, boxWidth, boxHeight}
			}
		}
		p.height = y + boxHeight + edgeRoom
	}
	for _, way := range ways {
		var bends []bend
		for i, n := range way {
			y := edgeRoom + n.layer*(boxHeight+gapY)
			if i > 0 {
				bends = append(bends, bend{n.x, y})
			}
			if i < len(way)-1 {
				bends = append(bends, bend{n.x, y + boxHeight})
			}
		}
		p.bends = append(p.bends, bends)
		p.paths = append(p.paths, pathOf(bends))
	}
	return p
}

// layered returns the layers, with the lanes of long edges, and for each edge its nodes.
func layered(boxes int, edges [][2]int) (layers [][]*node, ways [][]*node) {
	nodes := make([]*node, boxes)
	for i := range nodes {
		nodes[i] = &node{box: i}
	}
	for range boxes { // no path is longer
		for _, e := range edges {
			nodes[e[1]].layer = max(nodes[e[1]].layer, nodes[e[0]].layer+1)
		}
	}
	put := func(n *node) {
		for len(layers) <= n.layer {
			layers = append(layers, nil)
		}
		layers[n.layer] = append(layers[n.layer], n)
	}
	for _, n := range nodes {
		put(n)
	}
	for _, e := range edges {
		way := []*node{nodes[e[0]]}
		for l := nodes[e[0]].layer + 1; l < nodes[e[1]].layer; l++ {
			lane := &node{box: -1, layer: l}
			put(lane)
			way = append(way, lane)
		}
		way = append(way, nodes[e[1]])
		for i := 1; i < len(way); i++ {
			way[i-1].low, way[i].up = append(way[i-1].low, way[i]), append(way[i].up, way[i-1])
		}
		ways = append(ways, way)
	}
	return layers, ways
}

// order sorts each layer's nodes by the mean place of the nodes that they are joined to in the layer before.
func order(layers [][]*node, joined func(*node) []*node) {
	for _, layer := range layers {
		for i, n := range layer {
			to := joined(n)
			if len(to) == 0 {
				n.place = place(i, layer)
				continue
			}
			sum := 0.0
			for _, other := range to {
				sum += other.place
			}
			n.place = sum / float64(len(to))
		}
		slices.SortStableFunc(layer, func(a, b *node) int { return cmp.Compare(a.place, b.place) })
		for i, n := range layer {
			n.place = place(i, layer)
		}
	}
}

// place returns the position of a node in its layer, from 0 to 1, so that layers of different lengths compare.
func place(i int, layer []*node) float64 { return (float64(i) + 0.5) / float64(len(layer)) }

func widthOf(layer []*node) int {
	width := (len(layer) - 1) * gapX
	for _, n := range layer {
		width += n.width()
	}
	return width
}

// pathOf returns the path through bends: a curve from the bottom of one layer to the top of the next, and a straight line
// through a layer.
func pathOf(bends []bend) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%d,%d", bends[0].x, bends[0].y)
	for i := 1; i < len(bends); i++ {
		from, to := bends[i-1], bends[i]
		if i%2 == 0 {
			fmt.Fprintf(&b, "V%d", to.y)
			continue
		}
		middle := (from.y + to.y) / 2
		fmt.Fprintf(&b, "C%d,%d %d,%d %d,%d", from.x, middle, to.x, middle, to.x, to.y)
	}
	return b.String()
}
