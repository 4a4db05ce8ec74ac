package frames

// The scenarios of a server that requires SASL: each of its steps meets every fault.

import (
	"github.com/zklock/zklock"
	"github.com/zklock/zklock/sasl"
)

const saslUser, saslPassword = "locker", "secret"

var saslUsers = map[string]string{saslUser: saslPassword}

func withSASL() zklock.Option { return zklock.WithSASL(sasl.DigestMD5(saslUser, saslPassword)) }

var saslScenarios = []frameScenario{
	{name: "connect with SASL, first acquire", sasl: true, run: (*frameRun).connects},
	{name: "connection lost while holding, with SASL", sasl: true, run: func(r *frameRun) {
		r.ready(r.o)
		h, w := r.inLine(r.u, r.o, 2)
		r.proxy.CloseConnections()
		r.dwell()
		h.release()
		next := w.wait()
		r.dwell()
		r.finish(next)
	}},
}
