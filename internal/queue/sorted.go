package queue

import "slices"

// Sorted is a list of a lock root's children for many waiters. It finds a position in a time that
// hardly grows with the list, after one parse of the names.
type Sorted struct {
	names, markers []string
	all            []uint64 // keys of the members, sorted: nearest to the tail first
	exclusive      []uint64 // of all members but readers
}

// keyOf sorts members by descending numbers, negative ones first. As in PositionOf, members with
// one number keep the order of the list. i is the index of the name.
func keyOf(seq int64, i uint32) uint64 { return uint64(^uint32(seq))<<32 | uint64(i) }

func (s *Sorted) member(key uint64) Member {
	return Member{s.names[uint32(key)], int64(int32(^uint32(key >> 32)))}
}

// Sort sorts the children that take part in the queue. It uses the slices, which must not change.
func Sort(children, markers []string) *Sorted {
	s := &Sorted{names: children, markers: markers, all: make([]uint64, 0, len(children))}
	for i, name := range children {
		if m, ok := Parse(name, markers); ok {
			s.all = append(s.all, keyOf(m.Seq, uint32(i)))
		}
	}
	slices.Sort(s.all)
	s.exclusive = slices.DeleteFunc(slices.Clone(s.all), func(key uint64) bool { return IsReader(s.member(key).Name) })
	return s
}

// before returns the keys of the members with smaller numbers.
func before(keys []uint64, seq int64) []uint64 {
	i, _ := slices.BinarySearch(keys, keyOf(seq, 1<<32-1))
	return keys[i:]
}

// PositionOf returns the same as the function PositionOf, its specification, which it calls at the
// counter's end and for other markers.
func (s *Sorted) PositionOf(rule Rule, self string) Position {
	mine, _ := Parse(self, rule.Markers) // another name is not found among those with the number 0
	if mine.PastTheEnd() || len(s.all) == 0 || s.member(s.all[0]).Seq < 0 || !slices.Equal(rule.Markers, s.markers) {
		return PositionOf(rule, self, s.names)
	}
	ahead := before(s.all, mine.Seq)
	first, _ := slices.BinarySearch(s.all, keyOf(mine.Seq, 0))
	same := s.all[first : len(s.all)-len(ahead)]
	blockers := ahead
	if rule.IsShared() {
		blockers = before(s.exclusive, mine.Seq)
	}
	switch {
	case !slices.ContainsFunc(same, func(key uint64) bool { return s.names[uint32(key)] == self }):
		return Position{Kind: Missing}
	case len(same) > 1:
		return Position{Kind: Twin}
	case len(blockers) == 0:
		return Position{Kind: Front}
	}
	var near []Member // not an array on the stack: it would double the stack of each waiting reader
	for _, key := range blockers[:min(len(blockers), fewReaders)] {
		near = append(near, s.member(key))
	}
	lowest, _ := slices.BinarySearch(ahead, keyOf(s.member(ahead[len(ahead)-1]).Seq, 0))
	return rule.behind(near, len(blockers), s.member(ahead[lowest]))
}
