package offsetlog.spark.sink;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What a task tells the driver, which is Python: a pickle that calls {@code message_of} of
 * {@code sink/jvm_tasks.py} with JSON, the files of rows that are in no segment, and the pickled
 * message of a Python that wrote the rest.
 */
final class Message {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String CALL = "cpyspark_offsetlog.sink.jvm_tasks\nmessage_of\n";

  private final Map<String, Share> shares = new LinkedHashMap<>();

  /** What of it belongs to one topic. */
  static final class Share {
    private final ObjectNode json = JSON.createObjectNode();
    private final ArrayNode parts = json.putArray("parts");
    private final ArrayNode rows = json.putArray("rows");
    private Bytes file = new Bytes(0);

    private boolean isEmpty() {
      return parts.isEmpty() && rows.isEmpty();
    }

    private Share(Topic topic) {
      json.put("topic", topic.name());
      json.put("partitions", topic.partitions());
      json.put("created_at_entry", topic.createdAtEntry());
      json.put("tip", topic.tip());
      json.put("append_time", topic.appendTime());
    }

    /** A segment: a part as SPEC.md has it. */
    void addPart(int partition, Totals totals, long born, String id, SegmentEncoder.Foot foot) {
      ArrayNode part = parts.addArray();
      part.add(partition).add(totals.records).add(totals.bytes);
      part.add(totals.leastTime).add(totals.greatestTime);
      ArrayNode segment = part.addArray();
      segment.add(born).add(id).add(foot.size()).add(foot.footerBytes()).add(foot.sum());
    }

    /** How many of the rows in {@code file} are of a partition. */
    void addRows(int partition, int count) {
      rows.addArray().add(partition).add(count);
    }

    void setFile(Bytes file) {
      this.file = file;
    }
  }

  Share share(Topic topic) {
    return shares.computeIfAbsent(topic.name(), name -> new Share(topic));
  }

  /** The pickle; {@code query} and {@code python} may be null. */
  byte[] pickle(String query, String rootId, byte[] python) throws IOException {
    ObjectNode json = JSON.createObjectNode();
    json.put("query", query);
    json.put("root_id", rootId);
    ArrayNode list = json.putArray("shares");
    List<Share> staged = shares.values().stream().filter(share -> !share.isEmpty()).toList();
    staged.forEach(share -> list.add(share.json));
    Bytes out = new Bytes(4096);
    out.write(0x80); // PROTO
    out.write(3);
    out.write(CALL.getBytes(StandardCharsets.US_ASCII));
    byte[] text = JSON.writeValueAsBytes(json);
    putBytes(out, text, text.length);
    out.write('('); // MARK
    for (Share share : staged) {
      putBytes(out, share.file.data, share.file.size);
    }
    out.write('t'); // TUPLE
    if (python == null) {
      out.write('N'); // NONE
    } else {
      putBytes(out, python, python.length);
    }
    out.write(0x87); // TUPLE3
    out.write('R'); // REDUCE
    out.write('.'); // STOP
    return Arrays.copyOf(out.data, out.size);
  }

  private static void putBytes(Bytes out, byte[] data, int size) {
    out.write('B'); // BINBYTES
    out.putInt(size);
    out.write(data, 0, size);
  }
}
