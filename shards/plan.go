package shards

// The planning function. It is pure: no I/O, no clock and no lock. Two processes may have different
// versions of it, because only one member plans at a time and all members follow the plan that it
// wrote.

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// Member is one process of the group, as it described itself when it joined.
type Member struct {
	Name   string `json:"name"`
	Data   []byte `json:"data,omitempty"` // from WithMember, for example an address
	Weight int    `json:"weight"`
	ID     string `json:"id"` // of the call of Run; two members with one name differ in it
}

func (m Member) equal(o Member) bool {
	return m.Name == o.Name && m.Weight == o.Weight && m.ID == o.ID && slices.Equal(m.Data, o.Data)
}

// nobody as the owner means that no member can take the shard.
const nobody = -1

// plan assigns each shard to a member.
type plan struct {
	Format  int      `json:"format"`
	Members []Member `json:"members"`           // sorted by name
	Shards  []int    `json:"shards"`            // the index in Members of each shard's owner, or nobody
	Crashes int      `json:"crashes,omitempty"` // of new members lately, which lengthen the probation
	Raised  int64    `json:"raised,omitempty"`  // when that has changed, in Unix seconds of the planner's clock
}

func (p plan) owner(shard int) (Member, bool) {
	if shard < 0 || shard >= len(p.Shards) || p.Shards[shard] == nobody {
		return Member{}, false
	}
	return p.Members[p.Shards[shard]], true
}

// owners returns the members that own at least one shard, by name.
func (p plan) owners() map[string]Member {
	owners := map[string]Member{}
	for shard := range p.Shards {
		if m, ok := p.owner(shard); ok {
			owners[m.Name] = m
		}
	}
	return owners
}

// movesFrom counts the shards that have another owner in p than in the old plan.
func (p plan) movesFrom(old plan) (moves int) {
	for shard := range p.Shards {
		was, _ := old.owner(shard)
		if is, _ := p.owner(shard); is.Name != was.Name {
			moves++
		}
	}
	return moves
}

// sameOwners reports whether both plans assign each shard to the same member, under the same id,
// weight and data.
func (p plan) sameOwners(o plan) bool {
	for shard := range p.Shards {
		is, _ := p.owner(shard)
		if was, _ := o.owner(shard); !is.equal(was) {
			return false
		}
	}
	return len(p.Shards) == len(o.Shards)
}

// seat is one member while the shards are assigned.
type seat struct {
	Member
	stays bool   // keeps the shards that it has, and takes none
	load  int    // shards assigned so far
	quota int    // with balance: how many shards it must have in the end
	hash  uint64 // of the name
}

// next returns the plan that follows old, for n shards.
//
// A taker keeps its shards, and so does a keeper, which takes none: it is absent but may return, or
// is not ready. Each other shard goes to the taker that has the fewest shards for its weight. With
// balance, takers above their quota also give up shards to those below it, and no more than that.
// Then a second call changes nothing. A member of weight 0 has no shards.
func next(old plan, n int, takers, keepers []Member, balance bool) plan {
	seats := seatsOf(takers, keepers)
	p := plan{Format: format, Members: make([]Member, len(seats)), Shards: make([]int, n), Crashes: old.Crashes, Raised: old.Raised}
	index := make(map[string]int, len(seats))
	for i, s := range seats {
		p.Members[i], index[s.Name] = s.Member, i
	}
	for shard := range p.Shards {
		p.Shards[shard] = nobody
		if m, ok := old.owner(shard); ok {
			if i, ok := index[m.Name]; ok && seats[i].Weight > 0 {
				p.Shards[shard] = i
				seats[i].load++
			}
		}
	}
	if balance {
		setQuotas(seats, n)
		for shard := n - 1; shard >= 0; shard-- {
			if i := p.Shards[shard]; i != nobody && !seats[i].stays && seats[i].load > seats[i].quota {
				p.Shards[shard] = nobody
				seats[i].load--
			}
		}
	}
	for shard, i := range p.Shards {
		if i == nobody {
			if i = taker(seats, shard, balance); i != nobody {
				p.Shards[shard] = i
				seats[i].load++
			}
		}
	}
	return p
}

// seatsOf returns the members by name. If two have one name, the first of the takers counts.
func seatsOf(takers, keepers []Member) (seats []seat) {
	have := map[string]bool{}
	add := func(members []Member, stays bool) {
		for _, m := range members {
			if have[m.Name] {
				continue
			}
			have[m.Name] = true
			h := fnv.New64a()
			h.Write([]byte(m.Name))
			seats = append(seats, seat{Member: m, stays: stays, hash: h.Sum64()})
		}
	}
	add(takers, false)
	add(keepers, true)
	slices.SortFunc(seats, func(a, b seat) int { return cmp.Compare(a.Name, b.Name) })
	return seats
}

func (s *seat) takes() bool { return !s.stays && s.Weight > 0 }

// setQuotas divides the n shards, apart from the shards of members that stay as they are, by
// Webster's method: each shard goes to the member whose weight divided by 2·quota+1 is the largest.
// With a divisor method, one more member never raises another's quota. If several members are
// equal, one that already has a shard beyond its quota so far gets it, because that saves a move.
func setQuotas(seats []seat, n int) {
	for i := range seats {
		if seats[i].stays {
			n -= seats[i].load
		}
	}
	for range n {
		i := first(seats, (*seat).takes, func(s, b *seat) bool {
			order := cmp.Compare(s.Weight*(2*b.quota+1), b.Weight*(2*s.quota+1))
			return order > 0 || order == 0 && s.load > s.quota && b.load <= b.quota
		})
		if i == nobody {
			return
		}
		seats[i].quota++
	}
}

// taker returns the index of the member that gets the shard: the one with the fewest shards for its
// weight, with balance among those below their quota. The names and the shard decide between
// members that are equal, so that small differences do not always favor one name.
func taker(seats []seat, shard int, balance bool) int {
	mayTake := func(s *seat) bool { return s.takes() && (!balance || s.load < s.quota) }
	return first(seats, mayTake, func(s, b *seat) bool {
		order := cmp.Compare(s.Weight*(2*b.load+1), b.Weight*(2*s.load+1))
		return order > 0 || order == 0 && mix(s.hash, shard) > mix(b.hash, shard)
	})
}

// first returns the index of the seat that precedes all others of those that may take a shard, or
// nobody.
func first(seats []seat, mayTake func(*seat) bool, precedes func(s, b *seat) bool) int {
	best := nobody
	for i := range seats {
		if s := &seats[i]; mayTake(s) && (best == nobody || precedes(s, &seats[best])) {
			best = i
		}
	}
	return best
}

// mix is the finalizer of splitmix64 over a name's hash and a shard.
func mix(h uint64, shard int) uint64 {
	h += uint64(shard+1) * 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
