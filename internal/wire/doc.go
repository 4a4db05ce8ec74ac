// Package wire encodes and decodes ZooKeeper's client protocol: frames, jute records, opcodes and
// error codes.
//
// A connection carries frames: a big-endian int32 length and that many bytes. The first frame in
// each direction is the connect exchange ([ConnectRequest], [ConnectResponse]). After it, the
// client sends a [RequestHeader] and a record, and the server a [ReplyHeader] and, if its Err is
// [OK], a record.
//
// Every record has an Encode and a Decode method, so that a server, a client in a test and a proxy
// share one definition. A [Decoder] is safe for hostile input: it never panics, and it allocates
// memory only in proportion to its input.
package wire
