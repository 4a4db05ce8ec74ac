package tracecheck

// These tests attack the check: each mistake that a tracer can make is found.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// tracer makes the same calls as a Session.
type tracer struct {
	*Check
	ctx  context.Context
	info zklock.AcquireInfo
	hold *zklock.Hold
	of   *zklock.Hold // its first handle
}

func (f *tracer) start() { f.ctx = f.Check.start(context.Background(), f.info) }

func (f *tracer) end(a zklock.AcquireEndInfo) {
	if a.AcquireInfo = f.info; a.Hold != nil {
		a.First = f.of
		a.Outcome = cmp.Or(a.Outcome, "acquired")
	}
	f.note(f.ctx, a.AcquireInfo, func(k *call) string { return k.end(a) })
}

func (f *tracer) lost(h zklock.HoldInfo) {
	h.AcquireInfo, h.Hold, h.First = f.info, f.hold, f.of
	f.note(f.ctx, f.info, func(k *call) string { return k.lose(h) })
}

func (f *tracer) released(h zklock.HoldInfo) {
	h.AcquireInfo, h.Hold, h.First = f.info, f.hold, f.of
	f.note(f.ctx, f.info, func(k *call) string { return k.release(h) })
}

// reenter has a call granted, and returns another call that re-enters.
func (f *tracer) reenter() (again *tracer) {
	f.start()
	f.end(zklock.AcquireEndInfo{Hold: f.hold})
	again = &tracer{Check: f.Check, hold: new(zklock.Hold), of: f.hold, info: f.info}
	again.start()
	again.end(zklock.AcquireEndInfo{Hold: again.hold, Reentered: true})
	return again
}

// reenters has a hold with two handles end.
func (f *tracer) reenters(granted, again zklock.HoldInfo) {
	g := f.reenter()
	g.released(again)
	f.released(granted)
}

func TestCheck(t *testing.T) {
	loss := fmt.Errorf("gone: %w", zklock.ErrLost)
	lost := zklock.HoldInfo{Err: loss, Reason: zklock.LossOther}
	late := zklock.HoldInfo{Err: loss, Reason: zklock.LossOther, Overrun: time.Second, Last: true}
	last := zklock.HoldInfo{Last: true}
	for name, tt := range map[string]struct {
		calls func(f *tracer)
		wrong string
	}{
		"failed":               {func(f *tracer) { f.start(); f.end(zklock.AcquireEndInfo{Err: errors.New("no")}) }, ""},
		"released":             {func(f *tracer) { f.start(); f.end(zklock.AcquireEndInfo{Hold: f.hold}); f.released(last) }, ""},
		"lost and released":    {func(f *tracer) { f.start(); f.end(zklock.AcquireEndInfo{Hold: f.hold}); f.lost(lost); f.released(late) }, ""},
		"lost, never released": {func(f *tracer) { f.start(); f.end(zklock.AcquireEndInfo{Hold: f.hold}); f.lost(lost) }, ""},
		"no end":               {func(f *tracer) { f.start() }, "no AcquireEnd"},
		"two ends": {func(f *tracer) {
			f.start()
			f.end(zklock.AcquireEndInfo{Err: loss})
			f.end(zklock.AcquireEndInfo{Err: loss})
		}, "AcquireEnd a second time"},
		"neither hold nor error": {func(f *tracer) { f.start(); f.end(zklock.AcquireEndInfo{}) }, "AcquireEnd with the hold"},
		"another call": {func(f *tracer) {
			f.start()
			f.info.Path = "/other"
			f.end(zklock.AcquireEndInfo{Err: loss})
		}, "at the start"},
		"without its context": {func(f *tracer) {
			f.start()
			f.ctx = context.Background()
			f.end(zklock.AcquireEndInfo{Err: loss})
		}, "its context"},
		"no end of the hold": {func(f *tracer) { f.start(); f.end(zklock.AcquireEndInfo{Hold: f.hold}) }, "neither HoldLost nor HoldEnd"},
		"lost before the end of the acquire": {func(f *tracer) {
			f.start()
			f.lost(lost)
			f.end(zklock.AcquireEndInfo{Hold: f.hold})
		}, "HoldLost of another hold"},
		"lost after the release": {func(f *tracer) {
			f.start()
			f.end(zklock.AcquireEndInfo{Hold: f.hold})
			f.released(last)
			f.lost(lost)
		}, "HoldLost after the last HoldEnd"},
		"lost twice": {func(f *tracer) {
			f.start()
			f.end(zklock.AcquireEndInfo{Hold: f.hold})
			f.lost(lost)
			f.lost(lost)
		}, "HoldLost a second time"},
		"no reason": {func(f *tracer) {
			f.start()
			f.end(zklock.AcquireEndInfo{Hold: f.hold})
			f.lost(zklock.HoldInfo{Err: loss})
		}, "HoldLost with"},
		"another reason": {func(f *tracer) {
			f.start()
			f.end(zklock.AcquireEndInfo{Hold: f.hold})
			f.lost(zklock.HoldInfo{Err: loss, Reason: zklock.LossClosed})
			f.released(late)
		}, "that of HoldLost is"},
		"another outcome": {func(f *tracer) {
			f.start()
			f.end(zklock.AcquireEndInfo{Hold: f.hold, Outcome: "error"})
		}, "AcquireEnd with {"},
		"a loss that nobody told": {func(f *tracer) {
			f.start()
			f.end(zklock.AcquireEndInfo{Hold: f.hold})
			f.released(late)
		}, "that of HoldLost is \"\""},
		"released twice": {func(f *tracer) {
			f.start()
			f.end(zklock.AcquireEndInfo{Hold: f.hold})
			f.released(last)
			f.released(last)
		}, "HoldEnd a second time"},
		"re-entered": {func(f *tracer) { f.reenters(last, zklock.HoldInfo{}) }, ""},
		"re-entered, and lost": {func(f *tracer) {
			g := f.reenter()
			f.lost(lost)
			g.released(zklock.HoldInfo{Err: loss, Reason: zklock.LossOther})
			f.released(late)
		}, ""},
		"re-entered, and the loss of the other handle": {func(f *tracer) { f.reenter().lost(lost) }, "HoldLost of another hold"},
		"no last handle":   {func(f *tracer) { f.reenters(zklock.HoldInfo{}, zklock.HoldInfo{}) }, "no HoldEnd was the last"},
		"two last handles": {func(f *tracer) { f.reenters(last, last) }, "a second time"},
		"granted twice": {func(f *tracer) {
			f.start()
			f.end(zklock.AcquireEndInfo{Hold: f.hold})
			f.start()
			f.end(zklock.AcquireEndInfo{Hold: f.hold})
		}, "another call was granted"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &tracer{Check: New(), hold: new(zklock.Hold), info: zklock.AcquireInfo{Path: "/job"}}
			f.of = f.hold
			tt.calls(f)
			err := f.Ended(0)
			if tt.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.wrong)
			}
		})
	}
}
