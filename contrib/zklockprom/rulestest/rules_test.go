// Package rulestest checks rules.yml of zklockprom with Prometheus' own parser and engine. It is a
// module of its own, because Prometheus as a library would determine the versions of a hundred
// modules for every importer of zklockprom.
package rulestest

// These tests attack the alerts: expressions that do not parse or that fire without a cause,
// missing metrics, and alerts without cases in which they fire and stay silent.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/zklock/zklock/contrib/zklockprom"
)

const rulesFile = "../rules.yml"

// cases is the used part of cases.yml.
type cases struct {
	Interval model.Duration `yaml:"evaluation_interval"`
	Files    []string       `yaml:"rule_files"`
	Tests    []scene
}

type scene struct {
	Name     string
	Interval model.Duration
	Input    []struct{ Series, Values string } `yaml:"input_series"`
	Alerts   []expected                        `yaml:"alert_rule_test"`
}

type expected struct {
	At    model.Duration `yaml:"eval_time"`
	Alert string         `yaml:"alertname"`
	Fires []struct {
		Labels map[string]string `yaml:"exp_labels"`
	} `yaml:"exp_alerts"`
}

func readCases(t *testing.T) (c cases) {
	t.Helper()
	text, err := os.ReadFile("cases.yml")
	require.NoError(t, err)
	d := yaml.NewDecoder(strings.NewReader(string(text)))
	d.KnownFields(true)
	require.NoError(t, d.Decode(&c))
	require.Equal(t, []string{rulesFile}, c.Files)
	return c
}

func parse(t *testing.T) *rulefmt.RuleGroups {
	t.Helper()
	groups, errs := rulefmt.ParseFile(rulesFile, false, model.UTF8Validation)
	require.Empty(t, errs)
	return groups
}

// load returns the input in the format of promqltest.
func (s scene) load() string {
	var text strings.Builder
	fmt.Fprintf(&text, "load %v\n", s.Interval)
	for _, in := range s.Input {
		fmt.Fprintf(&text, "  %s %s\n", in.Series, in.Values)
	}
	return text.String()
}

// run evaluates the rules at each interval, and calls at after each.
func run(t *testing.T, load string, every, until time.Duration, at func(now time.Duration, all []*rules.AlertingRule)) {
	t.Helper()
	samples, err := promqltest.NewLazyLoader(load, promqltest.LazyLoaderOpts{})
	require.NoError(t, err)
	defer func() { require.NoError(t, samples.Close()) }()
	m := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(samples.QueryEngine(), samples.Storage()), Appendable: samples.Storage(), Context: context.Background(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: promslog.NewNopLogger(),
	})
	groups, errs := m.LoadGroups(every, labels.EmptyLabels(), "", nil, false, rulesFile)
	require.Empty(t, errs)
	for now := time.Duration(0); now <= until; now += every {
		var all []*rules.AlertingRule
		samples.WithSamplesTill(time.Unix(0, 0).Add(now), func(err error) {
			require.NoError(t, err)
			for _, g := range groups {
				g.Eval(samples.Context(), time.Unix(0, 0).Add(now))
				for _, r := range g.Rules() {
					require.NoError(t, r.LastError(), r.Name())
					all = append(all, r.(*rules.AlertingRule))
				}
			}
		})
		at(now, all)
	}
}

// firing returns the labels of an alert's instances that fire. Its annotations must be filled in.
func firing(t *testing.T, all []*rules.AlertingRule, alert string) (fire []string) {
	t.Helper()
	for _, r := range all {
		for _, a := range r.ActiveAlerts() {
			if r.Name() == alert && a.State == rules.StateFiring {
				fire = append(fire, labels.NewBuilder(a.Labels).Del(labels.AlertName).Labels().String())
				require.NotRegexp(t, "<error|<no value>|%!", a.Annotations.String())
			}
		}
	}
	slices.Sort(fire)
	return fire
}

// Each case of cases.yml: the alerts that fire are the expected ones, and no others of that name.
func TestCases(t *testing.T) {
	c := readCases(t)
	for _, s := range c.Tests {
		t.Run(strings.ReplaceAll(s.Name, " ", "-"), func(t *testing.T) {
			until, checked := time.Duration(0), 0
			for _, e := range s.Alerts {
				until = max(until, time.Duration(e.At))
			}
			run(t, s.load(), time.Duration(c.Interval), until, func(now time.Duration, all []*rules.AlertingRule) {
				for _, e := range s.Alerts {
					if time.Duration(e.At) != now {
						continue
					}
					checked++
					var want []string
					for _, f := range e.Fires {
						want = append(want, labels.FromMap(f.Labels).String())
					}
					slices.Sort(want)
					require.Equal(t, want, firing(t, all, e.Alert), "%s at %v", e.Alert, now)
				}
			})
			require.Equal(t, len(s.Alerts), checked, "times are multiples of %v", c.Interval)
		})
	}
}

// Each alert has a case in which it fires and one in which it does not, and no case names another.
func TestCases_EachAlertFiresAndIsSilent(t *testing.T) {
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, s := range readCases(t).Tests {
		for _, e := range s.Alerts {
			if len(e.Fires) > 0 {
				fires[e.Alert] = true
			} else {
				silent[e.Alert] = true
			}
		}
	}
	alerts := make(map[string]bool)
	for _, g := range parse(t).Groups {
		for _, r := range g.Rules {
			require.NotEmpty(t, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.NotEmpty(t, r.Annotations["description"], r.Alert)
			require.False(t, alerts[r.Alert], "%s stands twice", r.Alert)
			alerts[r.Alert] = true
		}
	}
	require.Equal(t, alerts, fires)
	require.Equal(t, alerts, silent)
}

var nameOf = regexp.MustCompile(`fqName: "([^"]*)"`)

// requireMetricsExist requires that an expression parses, and that each of its metrics belongs to
// zklockprom, or to `zklock run`, whose own tests check for it.
func requireMetricsExist(t *testing.T, in, text string) {
	t.Helper()
	there := make(map[string]bool)
	descs := make(chan *prometheus.Desc, 100)
	zklockprom.New().Describe(descs)
	close(descs)
	for d := range descs {
		name := nameOf.FindStringSubmatch(d.String())[1]
		for _, suffix := range []string{"", "_sum", "_count", "_bucket"} {
			there[name+suffix] = true
		}
	}
	expr, err := parser.ParseExpr(text)
	require.NoError(t, err, in)
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			require.True(t, there[v.Name] || strings.HasPrefix(v.Name, "zklock_run_"), "%s names %s", in, v.Name)
		}
		return nil
	})
}

func TestRules_NameMetricsThatAreThere(t *testing.T) {
	for _, g := range parse(t).Groups {
		for _, r := range g.Rules {
			requireMetricsExist(t, r.Alert, r.Expr)
		}
	}
}

// Each query of the dashboard parses with Grafana's variables replaced, and each panel has one.
func TestDashboard_NamesMetricsThatAreThere(t *testing.T) {
	text, err := os.ReadFile("../dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.NotEmpty(t, dashboard.Panels)
	for _, p := range dashboard.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, query := range p.Targets {
			requireMetricsExist(t, p.Title, strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$lock", ".*").Replace(query.Expr))
		}
	}
}
