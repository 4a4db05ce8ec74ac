package zklock

import "time"

// Stats is a Session in numbers.
type Stats struct {
	State      State
	Server     string        // that it is attached to, host:port; "" if to none
	Reconnects int           // how often it has been attached again, in the same ZooKeeper session or in a new one
	LeaseLeft  time.Duration // how long the holds may be relied on if no further answer comes; 0 if nothing is held

	Waiting  int // acquires under way, without those that wait for another call of their owner
	Held     int // holds that stand: one that is re-entered counts once, and all permits of a call as one
	Lost     int // holds that were lost and have a handle that nobody has released: work may go on under them
	Deleting int // deletions of lock nodes that no server has confirmed
}

// Stats returns the numbers as they are now. It sends nothing.
func (s *Session) Stats() Stats {
	s.connected().loseIfLate()
	st := Stats{State: s.State(), Server: s.link.Server(), Reconnects: max(0, int(s.attached.Load())-1)}
	st.Waiting, st.Held, st.Lost = s.locks.count()
	if z := s.link.ZKSession(); z != nil {
		st.Deleting = z.Inside.(*zkSession).reaper.Deleting()
		if st.Held > 0 {
			st.LeaseLeft = max(0, z.LeaseEnd().Sub(s.clock.Now()))
		}
	}
	return st
}

func (t *lockTable) count() (waiting, held, lost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.byKey {
		switch {
		case d.acquiring != nil:
			waiting++
		case d.isHeldLocked():
			held++
		default:
			lost++
		}
	}
	return waiting, held, lost
}
