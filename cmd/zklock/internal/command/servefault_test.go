package command

// Attacks the reading of faults: each must come back as it prints, and none may be taken for
// another.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

func TestParseFault_ReadsWhatItPrints(t *testing.T) {
	for _, f := range []zktest.Fault{
		zktest.After(zktest.Create).Path("/locks/*").Nth(2).DropReply().Close(),
		zktest.Before(zktest.AnyOp).Session(0x100a3f2d8c40001).Times(3).Delay(1500 * time.Millisecond).Fail(zktest.NoNode),
		zktest.Before(zktest.CloseSession).Fail(-7777).Optional(),
		zktest.OnEvent(zktest.AnyEvent).Path(`/a)("b`).Drop(), zktest.OnEvent(zktest.NodeChildrenChanged).Duplicate().Once(),
		zktest.RefuseConnections().Times(2), zktest.Before(zktest.Connect).Hold(), zktest.After(zktest.Op(102)).Expire().FreezeFor(time.Minute),
		zktest.Before(zktest.GetData).Hold(), zktest.After(zktest.Connect).Close(),
		zktest.Before(zktest.Create).Member(2).FreezeFor(time.Second), zktest.Before(zktest.AnyOp).Chance(0.1, 7).Close(),
	} {
		read, err := parseFault(f.String())
		require.NoError(t, err, f)
		require.Equal(t, f.String(), read.String())
	}
	_, err := parseFault("before(create).Close()")
	require.ErrorContains(t, err, "a fault begins with")
	_, err = parseFault("Before(create).Fail(NoAuth)")
	require.ErrorContains(t, err, "Fail(NoAuth)")
	f, err := parseFault("  zktest.Before(zktest.Create) . Path(\"/a\").Once().Fail(-102)\n")
	require.NoError(t, err)
	require.Equal(t, `Before(create).Path("/a").Once().Fail(no auth (-102))`, f.String())
}

func TestParseFault_Refuses(t *testing.T) {
	for spelled, say := range map[string]string{
		"": "name(argument)", "Close()": "a fault begins with", "Before(creat).Close()": "no such request", "OnEvent(create).Drop()": "no such event",
		"Before(create).Clos()": "no such step", "Before(create).Call(func)": "no such step", "Before(create).Close(now)": "no argument",
		"Before(create).Nth(two).Close()": "two", "Before(create).Chance(0.1).Close()": "a chance and a seed", "Before(create).Chance(0.1, x).Close()": "x", "Before(create).Delay(5).Close()": "missing unit", "Before(create": "not closed",
		"Before(create)Close": "name(argument)", "Before(create).Path(/a).Close()": "invalid syntax", "After(op(-3)).Close()": "no such request",
	} {
		_, err := parseFault(spelled)
		require.ErrorContains(t, err, say, spelled)
	}
}

func FuzzParseFault(f *testing.F) {
	f.Add(`After(create).Path("/locks/*").Nth(2).DropReply().Close()`)
	f.Add(`Before(any).Fail(no node (-101)).Session(0x1)`)
	f.Add("(\xff")
	f.Fuzz(func(t *testing.T, spelled string) {
		read, err := parseFault(spelled)
		if err != nil {
			return
		}
		again, err := parseFault(read.String())
		require.NoError(t, err, read)
		require.Equal(t, read.String(), again.String())
	})
}
