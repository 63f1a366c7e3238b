// A client of Tidelog written from its .proto files alone: it writes numbers, reads them as a member
// of a group, and goes on when a broker dies. The first number creates the topic.
//
//	./build.sh && ./numbers HOST:PORT[,HOST:PORT...] TOPIC COUNT
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "example.com/tidelog/v1"
)

const callTimeout, retryPause, giveUp = 5 * time.Second, 100 * time.Millisecond, time.Minute

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// A number whose answer was lost is sent again, and may be stored twice: readers must not mind.
func produce(brokers []*grpc.ClientConn, topic string, count int) {
	begun := time.Now()
	for number, turn := 0, 0; number < count; {
		text := []byte(strconv.Itoa(number))
		request := &pb.ProduceRecordsRequest{Topic: topic, Records: []*pb.Record{{Key: text, Value: text}}}
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		answer, err := pb.NewRecordsServiceClient(brokers[turn%len(brokers)]).ProduceRecords(ctx, request)
		cancel()
		if err == nil && answer.Places[0].Error == nil {
			number++
			continue
		} else if time.Since(begun) > giveUp {
			log.Fatal(err, answer)
		}
		turn++ // This broker is gone, or does not lead the partition: the next one is asked.
		time.Sleep(retryPause)
	}
}

// Reads until all numbers were seen or the stream breaks; acknowledges, and grants as many again.
func read(broker *grpc.ClientConn, topic string, seen map[string]bool, count int) error {
	ctx, cancel := context.WithTimeout(context.Background(), giveUp)
	defer cancel()
	stream, err := pb.NewSubscribeServiceClient(broker).Subscribe(ctx)
	if err != nil {
		return err
	}
	begin := &pb.SubscribeBegin{Group: topic + "-readers", Topics: []string{topic},
		StartAt: pb.StartAt_START_AT_EARLIEST, CreditRecords: 100}
	stream.Send(&pb.SubscribeRequest{Request: &pb.SubscribeRequest_Begin{Begin: begin}})
	for len(seen) < count {
		answer, err := stream.Recv() // Tells also what kept a request from being sent.
		if err != nil {
			return err
		}
		next := &pb.SubscribePosition{Topic: topic, Partition: answer.GetRecords().GetPartition()}
		for _, record := range answer.GetRecords().GetRecords() {
			seen[string(record.Value)], next.NextOffset = true, record.Offset+1
			fmt.Printf("read %s from %d@%d\n", record.Value, next.Partition, record.Offset)
		}
		if got := uint32(len(answer.GetRecords().GetRecords())); got > 0 {
			done := &pb.SubscribeAcknowledge{Positions: []*pb.SubscribePosition{next}}
			stream.Send(&pb.SubscribeRequest{Request: &pb.SubscribeRequest_Acknowledge{Acknowledge: done}})
			more := &pb.SubscribeCredit{Records: got}
			stream.Send(&pb.SubscribeRequest{Request: &pb.SubscribeRequest_Credit{Credit: more}})
		}
	}
	return nil
}

func main() {
	topic, count := os.Args[2], must(strconv.Atoi(os.Args[3]))
	var brokers []*grpc.ClientConn
	for _, address := range strings.Split(os.Args[1], ",") {
		plaintext := grpc.WithTransportCredentials(insecure.NewCredentials())
		brokers = append(brokers, must(grpc.NewClient(address, plaintext)))
	}
	go produce(brokers, topic, count)
	seen := map[string]bool{}
	for turn := 0; len(seen) < count; turn++ {
		if err := read(brokers[turn%len(brokers)], topic, seen, count); err != nil {
			fmt.Println("the stream broke, on to the next broker:", err)
			time.Sleep(retryPause)
		}
	}
	fmt.Printf("done: %d numbers\n", len(seen))
}
