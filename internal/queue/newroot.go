package queue

// The rules of a lock root that a transaction created together with the node. If that transaction
// was executed, the root did not exist before. So its first node is ours, and no node precedes it:
// the execution is the proof, without a list.
//
// The client whose transaction created the root deletes it with the node, in one transaction. No
// other client deletes it, so it remains once another client has queued in it, and the servers
// remove it later. If each last holder deleted the root, a client that finds the root and then
// creates its node could find the root missing again and again.

// CreateStep is the next step of a client whose node the servers have not created.
type CreateStep uint8

// The steps of a create.
const (
	CreateDenied   CreateStep = iota // the call fails
	CreateAlone                      // the lock root exists: create the node
	CreateWithRoot                   // the lock root is missing: create both in one transaction
	CreateParents                    // a parent is missing: create the parents, and then as CreateWithRoot
	CreateRoot                       // create the lock root with its parents, and then the node
)

// Rejection is how the servers rejected the creation of a node.
type Rejection struct {
	WithRoot bool // the request was the transaction
	OfNode   bool // the create of the node was rejected, not the create of the lock root
	NoNode   bool // the parent of the rejected node is missing
	Exists   bool // the rejected node exists

	CanBeNew bool // the lock is one whose root may be created in the transaction
	Tries    int  // transactions that this attempt has sent
	Roots    bool // the attempt has sent creates of the lock root or of its parents
}

// mostTries limits the transactions of an attempt: other clients may delete and create the lock
// root between its requests. Only the creates of CreateRoot have a pause between them.
const mostTries = 3

// Next returns the next step.
func (r Rejection) Next() CreateStep {
	switch {
	case r.OfNode && !r.NoNode:
		return CreateDenied
	case !r.WithRoot && r.CanBeNew && !r.Roots && r.Tries < mostTries:
		return CreateWithRoot
	case r.WithRoot && r.Exists:
		return CreateAlone
	case r.WithRoot && r.NoNode && !r.Roots:
		return CreateParents
	}
	// Without CREATE on the parent, the transaction is rejected although the lock root may exist.
	return CreateRoot
}

// KeepsRoot reports whether the node must be deleted alone after the servers have rejected the
// transaction that deletes it and the lock root, in which another node may be. failed is the
// operation that was rejected, −1 if the reply does not name it. If the node is missing, there is
// nothing left to delete.
func KeepsRoot(failed int, noNode bool) bool { return failed != 0 || !noNode }
