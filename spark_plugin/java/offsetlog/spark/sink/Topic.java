package offsetlog.spark.sink;

import com.fasterxml.jackson.databind.JsonNode;

/** What the plan says of a topic. */
record Topic(
    String name,
    String folder,
    int partitions,
    long createdAtEntry,
    long tip,
    long segmentBytes,
    String compression,
    long maxMessageBytes,
    boolean appendTime,
    boolean needsKey) {
  static Topic of(JsonNode json) {
    return new Topic(
        json.required("name").textValue(),
        json.required("folder").textValue(),
        json.required("partitions").intValue(),
        json.required("created_at_entry").longValue(),
        json.required("tip").longValue(),
        json.required("segment_bytes").longValue(),
        json.required("compression").textValue(),
        json.required("max_message_bytes").longValue(),
        json.required("append_time").booleanValue(),
        json.required("needs_key").booleanValue());
  }
}
