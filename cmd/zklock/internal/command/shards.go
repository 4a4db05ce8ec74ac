package command

// The shards command: the plan of a group, its members, and the holder of each shard.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/shards"
)

const shardsHelp = `Shards shows the group of the package shards on PATH, in three tables:

The first has the number of shards, the version of the plan (- if there is
none), the number of members that are present, of shards with a holder, of
shards without one, and of clients that wait for a shard, and the imbalance: how
many shards the plan gives for each unit of weight to the member that has most,
less the same number of the member that has fewest. When a group is quiet, it is
at most 1 if all members have weight 1.

The second has the members: how many shards the plan gives to each, how many it
holds, and for how many it waits. STATE is

  plans    it is the first member, which writes the plan
  follows  it is present, and in the plan
  joined   it is present, and gets shards when the planner balances them
  waits    an earlier member has the same name
  absent   it is not a member: it was one, and is in the plan or still holds
           shards; or it is another client that holds a shard, or waits for it

The third has the shards that deviate from the plan: shards without a holder,
with another holder than the plan names, or with a waiter. With --all it has
each shard. The token is the holder's fencing token.

The tables are not read at one moment: while shards move, a member may seem to
hold one too many.

Exit codes:
  0    the group was printed
  122  no server could be reached
  123  rejected: permissions, credentials, a certificate
  125  wrong usage, no group, a damaged plan, or zklock itself failed`

type shardGroup struct {
	lister
	printer
	path string
}

func newShardsCommand() *cobra.Command {
	var g shardGroup
	cmd := &cobra.Command{
		Use:               "shards [flags] PATH",
		Short:             "Show the actual and the planned owners of a group's shards",
		Long:              shardsHelp,
		Example:           `  zklock shards /orders/workers`,
		Args:              one("the PATH of a group, such as /orders/workers"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			g.path, g.stderr, g.out = args[0], cmd.ErrOrStderr(), printable{cmd.OutOrStdout()}
			if err := zklock.ValidatePath(g.path); err != nil {
				return &exitError{exitUsage, err}
			}
			return g.connected(cmd.Context(), g.show)
		},
	}
	g.addFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&g.asJSON, "json", false, "print a JSON object, with every shard")
	f.BoolVarP(&g.all, "all", "a", false, "list every shard")
	return cmd
}

func (g *shardGroup) show(ctx context.Context) error {
	ctx, cancel := g.within(ctx)
	defer cancel()
	sn, err := shards.Inspect(ctx, g.s, g.path)
	if sn.Queues == nil {
		return classify(err)
	}
	e := groupOf(g.path, sn)
	if printed := g.print(e); printed != nil {
		return printed
	}
	if err != nil { // the plan is damaged
		return classify(err)
	}
	return nil
}

type groupEntry struct {
	Path        string        `json:"path"`
	Shards      int           `json:"shards"`
	PlanVersion *int32        `json:"plan_version,omitempty"` // missing if there is no plan
	Held        int           `json:"held"`
	Unowned     []int         `json:"unowned"` // shards without a holder
	Waiters     int           `json:"waiters"` // clients, for all shards
	Imbalance   float64       `json:"imbalance"`
	Members     []memberEntry `json:"members"`
	Queues      []shardEntry  `json:"queues"`
}

// memberEntry is a member, or another client that holds a shard or waits for one.
type memberEntry struct {
	Name    string `json:"name"`
	Data    string `json:"data,omitempty"`
	Weight  int    `json:"weight"`
	ID      string `json:"id,omitempty"`
	State   string `json:"state"`
	Planned int    `json:"planned"`
	Holds   int    `json:"holds"`
	Waits   int    `json:"waits"`
}

// shardEntry is a shard: its planned owner, and its queue.
type shardEntry struct {
	Shard   int     `json:"shard"`
	Planned string  `json:"planned,omitempty"` // the name of a member
	Holder  string  `json:"holder,omitempty"`
	Token   int64   `json:"token,omitempty"`
	Queue   []entry `json:"queue"`
}

// waiters returns the names of the clients that wait for the shard.
func (e shardEntry) waiters() (names []string) {
	for _, p := range e.Queue {
		if !p.Holds {
			names = append(names, p.who())
		}
	}
	return names
}

func groupOf(path string, sn shards.Snapshot) groupEntry {
	g := groupEntry{Path: path, Shards: len(sn.Queues), Unowned: []int{}, Members: []memberEntry{}}
	if sn.Plan.Shards() > 0 {
		g.PlanVersion = &sn.Plan.Version
	}
	for shard, q := range sn.Queues {
		e := shardEntry{Shard: shard, Queue: entriesOf(queueOf(q))}
		if m, ok := sn.Plan.Owner(shard); ok {
			e.Planned = m.Name
		}
		if len(q) > 0 && q[0].Holds {
			e.Holder, e.Token = string(q[0].Data), q[0].Token
			g.Held++
		} else {
			g.Unowned = append(g.Unowned, shard)
		}
		g.Waiters += len(e.waiters())
		g.Queues = append(g.Queues, e)
	}
	g.addMembers(sn)
	g.Imbalance = g.imbalance()
	return g
}

// addMembers adds the members in the order of their queue, then the other names that occur. Shards
// count for the first member of a name: a later one has none.
func (g *groupEntry) addMembers(sn shards.Snapshot) {
	index := map[string]int{}
	isPlanned := func(m shards.Member) bool {
		return slices.ContainsFunc(sn.Plan.Members, func(p shards.Member) bool { return p.Name == m.Name && p.ID == m.ID })
	}
	for i, m := range sn.Members {
		e := memberEntry{Name: m.Name, Data: string(m.Data), Weight: m.Weight, ID: m.ID, State: "joined"}
		_, isTaken := index[m.Name]
		switch {
		case i == 0:
			e.State = "plans"
		case isTaken:
			e.State = "waits"
		case isPlanned(m):
			e.State = "follows"
		}
		if !isTaken {
			index[m.Name] = len(g.Members)
		}
		g.Members = append(g.Members, e)
	}
	present := len(g.Members)
	of := func(name string) *memberEntry {
		if _, is := index[name]; !is {
			index[name] = len(g.Members)
			g.Members = append(g.Members, memberEntry{Name: name, State: "absent"})
		}
		return &g.Members[index[name]]
	}
	for _, q := range g.Queues {
		if q.Planned != "" {
			of(q.Planned).Planned++
		}
		for _, p := range q.Queue {
			if p.Holds {
				of(p.Data).Holds++
			} else {
				of(p.Data).Waits++
			}
		}
	}
	slices.SortFunc(g.Members[present:], func(a, b memberEntry) int { return cmp.Compare(a.Name, b.Name) })
}

// imbalance returns how much more the plan gives to one member that is present than to another, for
// each unit of weight.
func (g *groupEntry) imbalance() float64 {
	var loads []float64
	for _, m := range g.Members {
		if m.Weight > 0 && m.State != "waits" {
			loads = append(loads, float64(m.Planned)/float64(m.Weight))
		}
	}
	if len(loads) == 0 {
		return 0
	}
	return slices.Max(loads) - slices.Min(loads)
}

func (g *shardGroup) print(e groupEntry) error {
	if g.asJSON {
		enc := json.NewEncoder(g.out)
		enc.SetIndent("", "  ")
		return enc.Encode(e)
	}
	version := "-"
	if e.PlanVersion != nil {
		version = strconv.Itoa(int(*e.PlanVersion))
	}
	present, members := e.memberRows()
	tables := [][][]string{{
		{"SHARDS", "PLAN", "MEMBERS", "HELD", "UNOWNED", "WAITERS", "IMBALANCE"},
		{strconv.Itoa(e.Shards), version, strconv.Itoa(present), strconv.Itoa(e.Held), strconv.Itoa(len(e.Unowned)), strconv.Itoa(e.Waiters),
			strconv.FormatFloat(e.Imbalance, 'g', 3, 64)},
	}, members}
	if list := e.shardRows(g.all); len(list) > 1 {
		tables = append(tables, list)
	}
	for i, rows := range tables {
		if i > 0 {
			fmt.Fprintln(g.out)
		}
		if err := g.table(rows); err != nil {
			return err
		}
	}
	return nil
}

func (g *groupEntry) memberRows() (present int, rows [][]string) {
	rows = [][]string{{"PLANNED", "HOLDS", "WAITS", "WEIGHT", "STATE", "MEMBER", "DATA"}}
	for _, m := range g.Members {
		weight := "-"
		if m.State != "absent" {
			weight = strconv.Itoa(m.Weight)
			present++
		}
		rows = append(rows, []string{strconv.Itoa(m.Planned), strconv.Itoa(m.Holds), strconv.Itoa(m.Waits), weight, m.State,
			entry{Data: m.Name}.who(), entry{Data: m.Data}.who()})
	}
	return present, rows
}

// shardRows returns the table of the shards: all, or those that deviate from the plan.
func (g *groupEntry) shardRows(all bool) [][]string {
	rows := [][]string{{"SHARD", "TOKEN", "PLANNED", "HOLDER", "WAITS"}}
	for _, q := range g.Queues {
		waiters := q.waiters()
		if !all && q.Token != 0 && q.Holder == q.Planned && len(waiters) == 0 {
			continue
		}
		token := "-"
		if q.Token != 0 {
			token = strconv.FormatInt(q.Token, 10)
		}
		rows = append(rows, []string{strconv.Itoa(q.Shard), token, entry{Data: q.Planned}.who(), entry{Data: q.Holder}.who(), cmp.Or(strings.Join(waiters, ", "), "-")})
	}
	return rows
}
