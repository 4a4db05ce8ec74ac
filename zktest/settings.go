package zktest

// The settings that ZooKeeper reads from zoo.cfg.

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// WithConfig sets parameters by their names in zoo.cfg, one in each argument:
//
//	srv := zktest.Start(t, zktest.WithConfig("tickTime=200", "4lw.commands.whitelist=ruok, mntr"))
//
// The parameters and defaults are ZooKeeper's, and times are in milliseconds:
//
//   - tickTime is 2000. Sessions expire at ticks.
//   - minSessionTimeout and maxSessionTimeout limit the session timeout that a client gets: 2 and
//     20 ticks.
//   - maxClientCnxns limits the connections of one client address to one server: 60. 0 is no limit.
//   - jute.maxbuffer is the length of the longest request: 1048575. At a longer one, the server
//     closes the connection.
//   - nio.sessionlessCnxnTimeout is the time for which a connection may have no session: 10000. The
//     server closes it by twice that time.
//   - syncLimit is the number of ticks for which a member of an [Ensemble] continues without
//     contact to the other members: 5.
//   - 4lw.commands.whitelist lists the four-letter words that the server responds to besides srvr.
//     An asterisk allows all. Without it, a health check by ruok or mntr fails.
//   - znode.container.checkIntervalMs is the time between two searches for empty containers and
//     overdue TTL nodes: 60000.
//   - extendedTypesEnabled=true allows TTL nodes. Otherwise, creating one fails with -6,
//     unimplemented.
//   - enforceQuota=true rejects writes beyond a quota's hard limits with -125. Otherwise, quotas
//     only count.
//   - DigestAuthenticationProvider.superDigest gives all permissions to a client that authenticates
//     with this [Digest].
//   - sessionRequireClientSASLAuth=true makes the server reject every request of a connection
//     without SASL with -124, and close the connection. It needs [WithSASLUsers].
//
// A later argument replaces an earlier one for the same parameter. A name may have the prefix
// zookeeper. of a system property, which it must not have in zoo.cfg. ZooKeeper takes
// jute.maxbuffer and znode.container.checkIntervalMs only from system properties of these names.
func WithConfig(settings ...string) Option {
	return func(c *config) { c.settings = append(c.settings, settings...) }
}

// parameters returns the variables that WithConfig sets, by their names in zoo.cfg.
func (c *config) parameters() map[string]any {
	return map[string]any{
		"tickTime":                        &c.tick,
		"minSessionTimeout":               &c.minTimeout,
		"maxSessionTimeout":               &c.maxTimeout,
		"maxClientCnxns":                  &c.maxConns,
		"jute.maxbuffer":                  &c.maxFrame,
		"nio.sessionlessCnxnTimeout":      &c.sessionless,
		"syncLimit":                       &c.syncLimit,
		"4lw.commands.whitelist":          &c.whitelist,
		"znode.container.checkIntervalMs": &c.containerCheck,
		"extendedTypesEnabled":            &c.ttl,
		"enforceQuota":                    &c.quotas,
		"sessionRequireClientSASLAuth":    &c.saslRequired,

		"DigestAuthenticationProvider.superDigest": &c.superDigest,
	}
}

// set sets the parameters that WithConfig has.
func (c *config) set() error {
	parameters := c.parameters()
	for _, setting := range c.settings {
		name, value, _ := strings.Cut(setting, "=")
		name = strings.TrimPrefix(strings.TrimSpace(name), "zookeeper.")
		base := 10
		if name == "jute.maxbuffer" {
			base = 0 // by the prefix of the number, as Java decodes a system property
		}
		if err := setParameter(parameters[name], strings.TrimSpace(value), base); err != nil {
			return fmt.Errorf("zktest: WithConfig(%q): %w", setting, err)
		}
	}
	for name, n := range map[string]int64{
		"tickTime": c.tick.Milliseconds(), "znode.container.checkIntervalMs": c.containerCheck.Milliseconds(), "syncLimit": int64(c.syncLimit),
		"jute.maxbuffer": int64(c.maxFrame), "nio.sessionlessCnxnTimeout": c.sessionless.Milliseconds(),
	} {
		if n < 1 {
			return fmt.Errorf("zktest: %s is %d; it must be at least 1", name, n)
		}
	}
	return nil
}

func setParameter(variable any, value string, base int) (err error) {
	var n uint64
	switch variable := variable.(type) {
	case *string:
		*variable = value
	case *[]string:
		*variable = strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
	case *bool:
		*variable, err = strconv.ParseBool(value)
	case *int:
		n, err = strconv.ParseUint(value, base, 31)
		*variable = int(n)
	case *time.Duration:
		n, err = strconv.ParseUint(value, 10, 31)
		*variable = time.Duration(n) * time.Millisecond
	default:
		known := slices.Sorted(maps.Keys(new(config).parameters()))
		return fmt.Errorf("zktest does not have this parameter; it has %s", strings.Join(known, ", "))
	}
	return err
}
