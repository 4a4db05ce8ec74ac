// Package longqueue sets from which length on a queue is long: there, a release leaves a record in the lock root, and the next in
// line looks by it. It is for tests, which want short queues.
package longqueue

// From makes an option of a Session, a zklock.Option: a list of n names or more is long. Package zklock sets it.
var From func(n int) (option any)
