package queue

// Orphan identifies nodes that a create whose response was lost may have made, and that no list has
// shown yet: by the lock root and by the protection id of the create. The id alone is not enough.
// The leases of a semaphore have the id of their node in the queue, so a list of the queue that
// shows that node shows nothing of the leases.
type Orphan struct{ Root, ID string }

// OrphansIn returns the children of root that are orphans: keys of the map.
func OrphansIn(orphans map[Orphan]bool, root string, children []string) (names []string) {
	if len(orphans) == 0 {
		return nil
	}
	for _, name := range children {
		id, _ := ProtectionID(name)
		if _, ok := orphans[Orphan{root, id}]; ok {
			names = append(names, name)
		}
	}
	return names
}
