package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"unicode/utf8"
)

const (
	headerBytes            = 61
	recordsMax             = 262_144
	decompressedBytesMax   = 64 << 20
	decompressionRatioMax  = 1_000
	decompressionAllowance = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errCodecNotHere = errors.New("this program has no such codec")

// refused is an error with the code that the vectors name.
type refused struct{ code, what string }

func (r refused) Error() string { return r.code + ": " + r.what }

func corrupt(format string, arguments ...any) error {
	return refused{"CORRUPT_BATCH", fmt.Sprintf(format, arguments...)}
}

func codeOf(err error) string {
	var r refused
	if errors.As(err, &r) {
		return r.code
	}
	return err.Error()
}

type header struct {
	BaseOffset      int64
	BatchLength     int32
	LeaderEpoch     int32
	Magic           int8
	Crc             uint32
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	RecordCount     int32
}

func (h header) fields() map[string]int64 {
	return map[string]int64{
		"base_offset":       h.BaseOffset,
		"batch_length":      int64(h.BatchLength),
		"leader_epoch":      int64(h.LeaderEpoch),
		"magic":             int64(h.Magic),
		"crc":               int64(h.Crc),
		"attributes":        int64(h.Attributes),
		"last_offset_delta": int64(h.LastOffsetDelta),
		"base_timestamp":    h.BaseTimestamp,
		"max_timestamp":     h.MaxTimestamp,
		"producer_id":       h.ProducerID,
		"producer_epoch":    int64(h.ProducerEpoch),
		"base_sequence":     int64(h.BaseSequence),
		"record_count":      int64(h.RecordCount),
	}
}

type record struct {
	Offset        int64       `json:"offset"`
	TimestampMs   int64       `json:"timestamp_ms"`
	TimestampType int         `json:"timestamp_type"`
	Key           *string     `json:"key"`
	Value         *string     `json:"value"`
	Headers       [][]*string `json:"headers"`
}

func readHeader(data []byte, compacted bool) (header, error) {
	var h header
	if len(data) < headerBytes {
		return h, corrupt("only %d bytes", len(data))
	}
	if err := binary.Read(bytes.NewReader(data[:headerBytes]), binary.BigEndian, &h); err != nil {
		return h, err
	}
	if h.Magic != 2 {
		return h, corrupt("magic %d", h.Magic)
	}
	if int(h.BatchLength)+12 != len(data) {
		return h, corrupt("batch length %d of %d bytes", h.BatchLength, len(data))
	}
	if h.Attributes&^0x7f != 0 {
		return h, corrupt("attributes %#x", h.Attributes)
	}
	if h.Attributes&7 > 4 {
		return h, refused{"UNSUPPORTED_CODEC", fmt.Sprint(h.Attributes & 7)}
	}
	if h.RecordCount > recordsMax {
		return h, refused{"BATCH_TOO_LARGE", fmt.Sprint(h.RecordCount)}
	}
	fits := h.RecordCount == h.LastOffsetDelta+1
	if compacted {
		fits = h.RecordCount >= 0 && h.RecordCount <= h.LastOffsetDelta+1
	}
	if !fits || h.LastOffsetDelta < 0 {
		return h, corrupt("%d records, last offset delta %d", h.RecordCount, h.LastOffsetDelta)
	}
	if (h.ProducerID < 0) != (h.ProducerEpoch < 0) || h.ProducerID < 0 && h.BaseSequence >= 0 {
		return h, corrupt("producer %d %d %d", h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	}
	if sum := crc32.Checksum(data[21:], castagnoli); sum != h.Crc {
		return h, corrupt("checksum %#x, computed %#x", h.Crc, sum)
	}
	return h, nil
}

func decompress(h header, body []byte) ([]byte, error) {
	switch h.Attributes & 7 {
	case 0:
		return body, nil
	case 1:
	default:
		return nil, errCodecNotHere
	}
	limit := max(decompressionRatioMax*len(body), decompressionAllowance)
	limit = min(limit, decompressedBytesMax)
	reader, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, corrupt("%v", err)
	}
	plain, err := io.ReadAll(io.LimitReader(reader, int64(limit)+1))
	if err != nil {
		return nil, corrupt("%v", err)
	}
	if len(plain) > limit {
		return nil, refused{"BATCH_TOO_LARGE", "decompressed"}
	}
	return plain, nil
}

// cursor reads a body; the first thing that does not fit is kept in err.
type cursor struct {
	data []byte
	at   int
	err  error
}

func (c *cursor) varint() int64 {
	number, size := binary.Varint(c.data[c.at:])
	if size <= 0 {
		if c.err == nil {
			c.err = corrupt("no number at byte %d", c.at)
		}
		return 0
	}
	c.at += size
	return number
}

func (c *cursor) bytes(size int64) []byte {
	if size < 0 || size > int64(len(c.data)-c.at) {
		if c.err == nil {
			c.err = corrupt("%d bytes at byte %d", size, c.at)
		}
		return nil
	}
	c.at += int(size)
	return c.data[c.at-int(size) : c.at]
}

func (c *cursor) content() *string {
	size := c.varint()
	if size < 0 {
		return nil
	}
	text := hex.EncodeToString(c.bytes(size))
	return &text
}

func (c *cursor) headers() [][]*string {
	headers := [][]*string{}
	count := c.varint()
	if count < 0 && c.err == nil {
		c.err = corrupt("%d headers", count)
	}
	for ; count > 0 && c.err == nil; count-- {
		name := string(c.bytes(c.varint()))
		if !utf8.ValidString(name) && c.err == nil {
			c.err = corrupt("a header's name is not UTF-8")
		}
		headers = append(headers, []*string{&name, c.content()})
	}
	return headers
}

func readRecords(data []byte, h header, compacted bool) ([]record, error) {
	body, err := decompress(h, data[headerBytes:])
	if err != nil {
		return nil, err
	}
	c := &cursor{data: body}
	records := []record{}
	last := int64(-1)
	for range make([]struct{}, h.RecordCount) {
		length := c.varint()
		began := c.at
		c.bytes(1)
		r := record{TimestampType: int(h.Attributes >> 3 & 1)}
		r.TimestampMs = h.BaseTimestamp + c.varint()
		if r.TimestampType == 1 {
			r.TimestampMs = h.MaxTimestamp
		}
		delta := c.varint()
		r.Offset = h.BaseOffset + delta
		r.Key, r.Value, r.Headers = c.content(), c.content(), c.headers()
		if c.err != nil {
			return nil, c.err
		}
		if int64(c.at-began) != length {
			return nil, corrupt("a record of %d bytes says %d", c.at-began, length)
		}
		follows := delta == last+1 || compacted && delta > last
		if !follows || delta > int64(h.LastOffsetDelta) {
			return nil, corrupt("offset delta %d after %d", delta, last)
		}
		last = delta
		records = append(records, r)
	}
	if c.at != len(body) {
		return nil, corrupt("%d bytes after the records", len(body)-c.at)
	}
	return records, nil
}
