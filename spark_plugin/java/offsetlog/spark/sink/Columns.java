package offsetlog.spark.sink;

import java.io.Serializable;

/** Where in Spark's rows each column lies; -1: it is not there. Keys and values may be texts. */
record Columns(
    int key,
    int value,
    int headers,
    int topic,
    int partition,
    int timestamp,
    boolean textKey,
    boolean textValue)
    implements Serializable {}
