package main

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strconv"
)

func checksum(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

func routeSum(topicID []byte, partition, batchCrc uint32) uint32 {
	data := append([]byte{}, topicID...)
	data = binary.BigEndian.AppendUint32(data, partition)
	return checksum(binary.BigEndian.AppendUint32(data, batchCrc))
}

func fetchSum(topicID []byte, partition uint32, offset uint64, crcOfBytes uint32) uint32 {
	data := append([]byte{}, topicID...)
	data = binary.BigEndian.AppendUint32(data, partition)
	data = binary.BigEndian.AppendUint64(data, offset)
	return checksum(binary.BigEndian.AppendUint32(data, crcOfBytes))
}

func checkSums(folder string) int {
	var sums struct {
		Checksum []struct {
			Bytes string `json:"bytes"`
			Sum   uint32 `json:"sum"`
		} `json:"checksum"`
		RouteSum []struct {
			TopicID   string `json:"topic_id"`
			Partition uint32 `json:"partition"`
			BatchCrc  uint32 `json:"batch_crc"`
			Sum       uint32 `json:"sum"`
		} `json:"route_sum"`
		FetchSum []struct {
			TopicID         string `json:"topic_id"`
			Partition       uint32 `json:"partition"`
			FirstBaseOffset uint64 `json:"first_base_offset"`
			Bytes           string `json:"bytes"`
			Sum             uint32 `json:"sum"`
		} `json:"fetch_sum"`
	}
	load(folder, "sums.json", &sums)
	for _, s := range sums.Checksum {
		check(checksum(unhex(s.Bytes)) == s.Sum, "checksum of %s", s.Bytes)
	}
	for _, s := range sums.RouteSum {
		got := routeSum(unhex(s.TopicID), s.Partition, s.BatchCrc)
		check(got == s.Sum, "route sum %d, wanted %d", got, s.Sum)
	}
	for _, s := range sums.FetchSum {
		crc := checksum(unhex(s.Bytes))
		got := fetchSum(unhex(s.TopicID), s.Partition, s.FirstBaseOffset, crc)
		check(got == s.Sum, "fetch sum %d, wanted %d", got, s.Sum)
	}
	return len(sums.Checksum) + len(sums.RouteSum) + len(sums.FetchSum)
}

func checkNumbers(folder string) int {
	var numbers []struct {
		Number string `json:"number"`
		Bytes  string `json:"bytes"`
	}
	load(folder, "numbers.json", &numbers)
	for _, n := range numbers {
		number, err := strconv.ParseInt(n.Number, 10, 64)
		encoded := hex.EncodeToString(binary.AppendVarint(nil, number))
		check(err == nil && encoded == n.Bytes, "number %s is %s", n.Number, encoded)
	}
	return len(numbers)
}

func murmur2(data []byte) uint32 {
	const multiplier = 0x5bd1e995
	hash := uint32(0x9747b28c) ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		word := binary.LittleEndian.Uint32(data) * multiplier
		word = (word ^ word>>24) * multiplier
		hash = hash*multiplier ^ word
	}
	if len(data) > 0 {
		for index, rest := range data {
			hash ^= uint32(rest) << (8 * index)
		}
		hash *= multiplier
	}
	hash = (hash ^ hash>>13) * multiplier
	return hash ^ hash>>15
}

func checkPartitions(folder string) int {
	var partitions struct {
		Keys []struct {
			Key     string `json:"key"`
			Murmur2 uint32 `json:"murmur2"`
			Of6     uint32 `json:"partition_of_6"`
			Of1000  uint32 `json:"partition_of_1000"`
		} `json:"keys"`
		Coordinators []struct {
			Name string `json:"name"`
			Of16 uint32 `json:"partition_of_16"`
		} `json:"coordinators"`
	}
	load(folder, "partitions.json", &partitions)
	for _, k := range partitions.Keys {
		hash := murmur2(unhex(k.Key))
		positive := hash & 0x7fffffff
		same := hash == k.Murmur2 && positive%6 == k.Of6 && positive%1000 == k.Of1000
		check(same, "key %s hashes to %d", k.Key, hash)
	}
	for _, c := range partitions.Coordinators {
		place := murmur2([]byte(c.Name)) & 0x7fffffff % 16
		check(place == c.Of16, "coordinator of %q is in %d", c.Name, place)
	}
	return len(partitions.Keys) + len(partitions.Coordinators)
}
