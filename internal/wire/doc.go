// Package wire is ZooKeeper's client protocol as bytes: frames, jute records, opcodes and error codes.
//
// A connection carries frames: a big-endian int32 length and that many bytes. The first frame each way is the
// connect exchange ([ConnectRequest], [ConnectResponse]); after it the client sends a [RequestHeader] and a
// record, and the server a [ReplyHeader] and, when its Err is [OK], a record.
//
// Every record has an Encode and a Decode method, so that a server, a client in a test and a proxy between
// the two share one definition. A [Decoder] is made for hostile input: it never panics, and it never
// allocates more than the bytes it was given can justify.
package wire
