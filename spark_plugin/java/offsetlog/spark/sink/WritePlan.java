package offsetlog.spark.sink;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * What Python planned for a write's tasks, as {@code sink/jvm_tasks.py} makes it.
 *
 * @param rootFile what {@code _offsetlog.json} holds, by which a root is known
 * @param spread where rows without a key begin
 * @param inStream whether the batch's number counts for that, too
 * @param topic of all rows; null where each row names its own
 * @param topics those that rows may name here
 * @param failures what Python says for the system's words for a failure
 */
record WritePlan(
    Path root,
    String url,
    String rootId,
    String rootFile,
    Columns columns,
    long spread,
    boolean inStream,
    long bufferBytes,
    long messageBytes,
    long messagesBytes,
    Topic topic,
    Map<UTF8String, Topic> topics,
    Map<String, String> failures) {
  private static final ObjectMapper JSON = new ObjectMapper();

  static WritePlan of(String text) throws JsonProcessingException {
    JsonNode json = JSON.readTree(text);
    JsonNode columns = json.required("columns");
    Map<UTF8String, Topic> topics = new HashMap<>();
    for (JsonNode each : json.required("topics")) {
      Topic topic = Topic.of(each);
      topics.put(UTF8String.fromString(topic.name()), topic);
    }
    Map<String, String> failures = new HashMap<>();
    json.required("failures")
        .properties()
        .forEach(each -> failures.put(each.getKey(), each.getValue().textValue()));
    boolean hasOne = json.required("one_topic").booleanValue();
    return new WritePlan(
        Path.of(json.required("root").textValue()),
        json.required("url").textValue(),
        json.required("root_id").textValue(),
        json.required("root_file").textValue(),
        new Columns(
            columns.required("key").intValue(),
            columns.required("value").intValue(),
            columns.required("headers").intValue(),
            columns.required("topic").intValue(),
            columns.required("partition").intValue(),
            columns.required("timestamp").intValue(),
            columns.required("text_key").booleanValue(),
            columns.required("text_value").booleanValue()),
        json.required("spread").longValue(),
        json.required("in_stream").booleanValue(),
        json.required("buffer_bytes").longValue(),
        json.required("message_bytes").longValue(),
        json.required("messages_bytes").longValue(),
        hasOne ? topics.values().iterator().next() : null,
        topics,
        failures);
  }

  /** How many bytes of rows a task may send in its message: see {@code message_limit} of Python. */
  long messageLimit(int task) {
    return Math.min(messageBytes, messagesBytes / (task + 1));
  }
}
