package wire

import (
	"math"
	"slices"
)

// MultiOp is one operation of a [MultiRequest]; Op determines which fields are used.
type MultiOp struct {
	Op      Op
	Create  CreateRequest // create, create2, createContainer, createTTL
	Path    string        // of every operation
	Data    []byte        // setData
	Version int32         // delete, setData, check
	Watch   bool          // getData, getChildren: sent, but ignored
}

// MultiRequest is the body of multi (1, 2, 5, 13, 15, 19, 21) and multiRead (4, 8).
type MultiRequest struct{ Ops []MultiOp }

func (r MultiRequest) Encode(e *Encoder) {
	for _, op := range r.Ops {
		e.multiHeader(op.Op, false, -1)
		switch op.Op {
		case OpCreate, OpCreate2, OpCreateContainer:
			op.Create.Encode(e)
		case OpCreateTTL:
			CreateTTLRequest{op.Create}.Encode(e)
		case OpSetData:
			SetDataRequest{op.Path, op.Data, op.Version}.Encode(e)
		case OpGetData, OpGetChildren:
			PathWatchRequest{op.Path, op.Watch}.Encode(e)
		default:
			PathVersionRequest{op.Path, op.Version}.Encode(e)
		}
	}
	e.multiHeader(-1, true, -1)
}

func (e *Encoder) multiHeader(op Op, done bool, err Code) {
	e.Int32(int32(op))
	e.Bool(done)
	e.Int32(int32(err))
}

func (d *Decoder) multiHeader() (op Op, done bool, err Code) {
	return Op(d.Int32()), d.Bool(), Code(d.Int32())
}

// Decode reads the request. Operations that a multi cannot contain, and reads mixed with writes,
// are malformed.
func (r *MultiRequest) Decode(d *Decoder) {
	r.Ops = nil
	for {
		op, done, _ := d.multiHeader()
		if done || d.err != nil {
			break
		}
		m := MultiOp{Op: op}
		switch op {
		case OpCreate, OpCreate2, OpCreateContainer:
			m.Create.Decode(d)
			m.Path = m.Create.Path
		case OpCreateTTL:
			var ttl CreateTTLRequest
			ttl.Decode(d)
			m.Create, m.Path = ttl.CreateRequest, ttl.Path
		case OpDelete, OpCheck:
			m.Path, m.Version = d.Text(), d.Int32()
		case OpSetData:
			m.Path, m.Data, m.Version = d.Text(), d.Buffer(), d.Int32()
		case OpGetData, OpGetChildren:
			m.Path, m.Watch = d.Text(), d.Bool()
		default:
			d.fail("%v inside a multi", op)
		}
		r.Ops = append(r.Ops, m)
	}
	isRead := func(m MultiOp) bool { return m.Op == OpGetData || m.Op == OpGetChildren }
	if slices.ContainsFunc(r.Ops, isRead) && slices.ContainsFunc(r.Ops, func(m MultiOp) bool { return !isRead(m) }) {
		d.fail("reads and writes in one multi")
	}
	if d.err != nil {
		r.Ops = nil
	}
}

// MultiResult is one result of a [MultiResponse]; for OpError only Err is set.
type MultiResult struct {
	Op       Op // OpCreate, OpCreate2, OpSetData, OpDelete, OpCheck, OpGetData, OpGetChildren or OpError
	Path     string
	Stat     Stat
	Data     []byte
	Children []string
	Err      Code
}

// MultiResponse is the response to multi and multiRead.
type MultiResponse struct{ Results []MultiResult }

func (r MultiResponse) Encode(e *Encoder) {
	for _, res := range r.Results {
		e.multiHeader(res.Op, false, res.Err)
		switch res.Op {
		case OpCreate:
			e.String(res.Path)
		case OpCreate2:
			e.String(res.Path)
			res.Stat.Encode(e)
		case OpSetData:
			res.Stat.Encode(e)
		case OpGetData:
			e.Buffer(res.Data)
			res.Stat.Encode(e)
		case OpGetChildren:
			e.Strings(res.Children)
		case OpError:
			e.Int32(int32(res.Err))
		}
	}
	e.multiHeader(-1, true, -1)
}

// Decode reads the response with any number of results. It is for readers that trust the server.
func (r *MultiResponse) Decode(d *Decoder) { r.Results = d.MultiResults(math.MaxInt) }

const multiHeaderSize = 9 // bytes; each operation and each result begins with one

// MultiResults reads the response to a multi with at most the given number of results. A longer
// response is malformed, and the rest is not decoded: a result of 9 bytes needs 160 bytes of
// memory.
func (d *Decoder) MultiResults(most int) []MultiResult {
	var results []MultiResult
	for {
		op, done, err := d.multiHeader()
		if done && d.err == nil {
			return results
		}
		if len(results) == most {
			d.fail("more than %d results", most)
		}
		res := MultiResult{Op: op, Err: err}
		res.decode(d)
		if d.err != nil {
			return nil
		}
		results = append(results, res)
	}
}

// decode reads the part after the header.
func (r *MultiResult) decode(d *Decoder) {
	switch r.Op {
	case OpCreate:
		r.Path = d.Text()
	case OpCreate2:
		r.Path = d.Text()
		r.Stat.Decode(d)
	case OpSetData:
		r.Stat.Decode(d)
	case OpGetData:
		r.Data = d.Buffer()
		r.Stat.Decode(d)
	case OpGetChildren:
		r.Children = d.Strings()
	case OpError:
		r.Err = Code(d.Int32())
	case OpDelete, OpCheck:
	default:
		d.fail("%v in a multi's response", r.Op)
	}
}

// MultiError returns the first error of a failed multi for which isIt returns true, or OK. It keeps
// no results.
func (d *Decoder) MultiError(isIt func(Code) bool) Code {
	for {
		op, done, _ := d.multiHeader()
		if done || op != OpError {
			return OK
		}
		if code := Code(d.Int32()); d.err != nil || isIt(code) {
			return code
		}
	}
}
