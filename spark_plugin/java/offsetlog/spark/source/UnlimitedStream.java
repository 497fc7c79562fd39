package offsetlog.spark.source;

import org.apache.spark.sql.connector.read.streaming.AcceptsLatestSeenOffset;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.types.StructType;

/** The stream before Spark 4.2: it is told of limits by nobody, and where a query stands but once. */
final class UnlimitedStream extends LogStream implements AcceptsLatestSeenOffset {
  private final AcceptsLatestSeenOffset stream;

  UnlimitedStream(
      MicroBatchStream stream, StructType columns, Narrowed narrowed, StoreAccess access) {
    super(stream, columns, narrowed, access);
    this.stream = (AcceptsLatestSeenOffset) stream;
  }

  @Override
  public void setLatestSeenOffset(Offset offset) {
    stream.setLatestSeenOffset(offset);
  }
}
