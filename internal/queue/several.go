package queue

// InFront says how many of several nodes, which one transaction has made in as many queues, may be granted now: by their places, in the
// order in which their locks are taken. It is those before the first that is not in front. That one may stay, and wait. Those after it
// must go at once.
//
// So nobody has what a client that takes the locks one after the other, in that order, would not have: all that it waits for comes
// after all that it holds. To wait in several queues at once is a deadlock beside such a client. S holds A. T makes its nodes in A and
// B. S queues in B, behind T. T waits in A, behind S.
func InFront(places []Place) int {
	for i, p := range places {
		if p.Kind != Front {
			return i
		}
	}
	return len(places)
}
