// Command golden checks Tidelog's golden vectors with a reader written from proto/BATCH.md alone.
//
//	go run . FOLDER
//
// It uses the standard library only, which has no snappy, lz4 or zstd: of batches in those codecs
// it checks header and checksum.
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
)

type vector struct {
	Name        string           `json:"name"`
	Codec       string           `json:"codec"`
	IsCompacted bool             `json:"is_compacted"`
	Header      map[string]int64 `json:"header"`
	Records     []record         `json:"records"`
	Bytes       string           `json:"bytes"`
}

type refusal struct {
	Name  string `json:"name"`
	Code  string `json:"code"`
	Bytes string `json:"bytes"`
}

var failures int

func check(ok bool, format string, arguments ...any) {
	if !ok {
		failures++
		fmt.Printf("FAIL "+format+"\n", arguments...)
	}
}

func unhex(text string) []byte {
	data, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return data
}

func load(folder, name string, into any) {
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func checkBatches(folder string) (int, int) {
	var vectors []vector
	load(folder, "batches.json", &vectors)
	headersOnly := 0
	for _, v := range vectors {
		data := unhex(v.Bytes)
		h, err := readHeader(data, v.IsCompacted)
		if err != nil {
			check(false, "%s: %v", v.Name, err)
			continue
		}
		check(reflect.DeepEqual(h.fields(), v.Header), "%s: header %v", v.Name, h.fields())
		records, err := readRecords(data, h, v.IsCompacted)
		if err == errCodecNotHere {
			headersOnly++
			continue
		}
		check(err == nil, "%s: %v", v.Name, err)
		check(len(records) == len(v.Records), "%s: %d records", v.Name, len(records))
		for i := range records {
			same := i < len(v.Records) && reflect.DeepEqual(records[i], v.Records[i])
			check(same, "%s: record %d is %+v", v.Name, i, records[i])
		}
	}
	return len(vectors), headersOnly
}

func checkRefused(folder string) int {
	var refusals []refusal
	load(folder, "refused.json", &refusals)
	for _, r := range refusals {
		data := unhex(r.Bytes)
		h, err := readHeader(data, false)
		if err == nil {
			_, err = readRecords(data, h, false)
		}
		if err == nil {
			check(false, "%s: was read", r.Name)
			continue
		}
		check(codeOf(err) == r.Code, "%s: %v, wanted %s", r.Name, err, r.Code)
	}
	return len(refusals)
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: golden FOLDER")
		os.Exit(2)
	}
	folder := os.Args[1]
	batches, headersOnly := checkBatches(folder)
	refused := checkRefused(folder)
	sums := checkSums(folder)
	numbers := checkNumbers(folder)
	keys := checkPartitions(folder)
	fmt.Printf("%d batches (%d of them by header and checksum only: codec none/gzip here), ",
		batches, headersOnly)
	fmt.Printf("%d refused, %d sums, %d numbers, %d keys: %d failures\n",
		refused, sums, numbers, keys, failures)
	if failures > 0 {
		os.Exit(1)
	}
}
