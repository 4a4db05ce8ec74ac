package queue

// InFront returns how many of several nodes may be granted now. One transaction has created them in
// as many queues, and places has their positions, in the order in which their locks are taken. The
// nodes before the first blocked one are granted. That one may stay and wait. The nodes after it
// must be deleted at once.
//
// So no client has a node that a client taking the locks one by one, in that order, would not have:
// all locks that it waits for come after all locks that it holds. Waiting in several queues at once
// could deadlock with such a client: S holds A. T creates its nodes in A and B. S queues in B,
// behind T. T waits in A, behind S.
func InFront(places []Position) int {
	for i, p := range places {
		if p.Kind != Front {
			return i
		}
	}
	return len(places)
}
