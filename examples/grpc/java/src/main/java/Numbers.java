import com.google.protobuf.ByteString;
import io.grpc.*;
import io.grpc.stub.StreamObserver;
import java.util.List;
import java.util.Set;
import java.util.concurrent.*;
import java.util.stream.Stream;
import tidelog.v1.*;
import tidelog.v1.Records.ProduceRecordsRequest;
import tidelog.v1.Records.Record;
import tidelog.v1.Subscribe.*;

/** Writes numbers, reads them as a member of a group, goes on when a broker dies. See pom.xml. */
public final class Numbers {
  static final long CALL_TIMEOUT_MS = 5_000, RETRY_MS = 100, GIVE_UP_MS = 60_000;

  /** Whether it is stored now. A resend after a lost answer may store it twice: readers must not mind. */
  static boolean isStored(ManagedChannel broker, ProduceRecordsRequest request) {
    try {
      var stub = RecordsServiceGrpc.newBlockingStub(broker).withDeadlineAfter(CALL_TIMEOUT_MS, TimeUnit.MILLISECONDS);
      return !stub.produceRecords(request).getPlaces(0).hasError();
    } catch (StatusRuntimeException failure) {
      return false;
    }
  }

  static void produce(List<ManagedChannel> brokers, String topic, int count) throws InterruptedException {
    var begun = System.currentTimeMillis();
    for (int number = 0, turn = 0; number < count; ) {
      var text = ByteString.copyFromUtf8(Integer.toString(number));
      var record = Record.newBuilder().setKey(text).setValue(text);
      var request = ProduceRecordsRequest.newBuilder().setTopic(topic).addRecords(record).build();
      if (isStored(brokers.get(turn % brokers.size()), request)) {
        number++;
        continue;
      }
      if (System.currentTimeMillis() - begun > GIVE_UP_MS) throw new IllegalStateException("nobody stored " + number);
      turn++; // This broker is gone, or does not lead the partition: the next one is asked.
      Thread.sleep(RETRY_MS);
    }
  }

  /** Reads until all numbers were seen or the stream breaks; acknowledges, and grants as many again. */
  static final class Reader implements StreamObserver<SubscribeResponse> {
    final CompletableFuture<Void> end = new CompletableFuture<>();
    final StreamObserver<SubscribeRequest> requests;
    final Set<String> seen;
    final int count;

    Reader(ManagedChannel broker, String topic, Set<String> seen, int count) {
      this.seen = seen;
      this.count = count;
      requests = SubscribeServiceGrpc.newStub(broker).subscribe(this);
      var begin = SubscribeBegin.newBuilder().setGroup(topic + "-readers").addTopics(topic)
          .setStartAt(StartAt.START_AT_EARLIEST).setCreditRecords(100);
      requests.onNext(SubscribeRequest.newBuilder().setBegin(begin).build());
    }

    public void onNext(SubscribeResponse answer) {
      if (!answer.hasRecords()) return;
      var got = answer.getRecords();
      var next = SubscribePosition.newBuilder().setTopic(got.getTopic()).setPartition(got.getPartition());
      for (var record : got.getRecordsList()) {
        seen.add(record.getValue().toStringUtf8());
        next.setNextOffset(record.getOffset() + 1);
        System.out.printf("read %s from %d@%d%n", record.getValue().toStringUtf8(), got.getPartition(), record.getOffset());
      }
      var done = SubscribeAcknowledge.newBuilder().addPositions(next);
      requests.onNext(SubscribeRequest.newBuilder().setAcknowledge(done).build());
      var more = SubscribeCredit.newBuilder().setRecords(got.getRecordsCount());
      requests.onNext(SubscribeRequest.newBuilder().setCredit(more).build());
      if (seen.size() == count) requests.onCompleted();
    }

    public void onError(Throwable failure) { end.completeExceptionally(failure); }

    public void onCompleted() { end.complete(null); }
  }

  public static void main(String[] arguments) throws Exception {
    var topic = arguments[1];
    var count = Integer.parseInt(arguments[2]);
    var brokers = Stream.of(arguments[0].split(","))
        .map(address -> Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build()).toList();
    var writing = new Thread(() -> { try { produce(brokers, topic, count); } catch (InterruptedException end) { } });
    writing.start();
    Set<String> seen = ConcurrentHashMap.newKeySet();
    for (int turn = 0; seen.size() < count; turn++) {
      try {
        new Reader(brokers.get(turn % brokers.size()), topic, seen, count).end.get(GIVE_UP_MS, TimeUnit.MILLISECONDS);
      } catch (ExecutionException broken) {
        System.out.println("the stream broke, on to the next broker: " + broken.getCause().getMessage());
        Thread.sleep(RETRY_MS);
      }
    }
    writing.join();
    System.out.printf("done: %d numbers%n", seen.size());
    System.exit(0);
  }
}
