"""Attacks on a running proxy: what a client that speaks nothing but the wire protocol gets, in figures.

`wire` builds the frames and sends them, `broker_program` is a scripted broker that counts what reaches and what leaves
it, `scene` puts a proxy before it, `attacks` holds one module a family.
`make test` runs the short form of each and asserts its bar; `make hostile` the long one, into docs/security.md.
Everything is bounded in time and count, and goes to loopback only.
"""
