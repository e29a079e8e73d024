package keyed

// fifo is a queue in a ring buffer. It grows as needed, and releases the values that are popped.
type fifo[T any] struct {
	ring  []T
	front int
	n     int
}

func (f *fifo[T]) len() int { return f.n }

// at returns the i-th element from the front.
func (f *fifo[T]) at(i int) *T { return &f.ring[(f.front+i)&(len(f.ring)-1)] }

func (f *fifo[T]) push(v T) {
	f.grow()
	f.n++
	*f.at(f.n - 1) = v
}

// pushFront undoes a pop.
func (f *fifo[T]) pushFront(v T) {
	f.grow()
	f.n++
	f.front = (f.front - 1) & (len(f.ring) - 1)
	*f.at(0) = v
}

// grow makes room for one more element.
func (f *fifo[T]) grow() {
	if f.n < len(f.ring) {
		return
	}
	ring := make([]T, max(2*len(f.ring), 4)) // a power of two
	for i := range f.n {
		ring[i] = *f.at(i)
	}
	f.ring, f.front = ring, 0
}

func (f *fifo[T]) pop() T {
	v := f.at(0)
	popped := *v
	var zero T
	*v = zero
	f.front = (f.front + 1) & (len(f.ring) - 1)
	f.n--
	return popped
}
