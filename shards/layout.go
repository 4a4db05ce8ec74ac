package shards

const format = 1
