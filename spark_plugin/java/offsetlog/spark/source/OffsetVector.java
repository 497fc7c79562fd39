package offsetlog.spark.source;

import offsetlog.segment.SegmentReader;
import org.apache.spark.sql.types.DataTypes;

/** Offsets that count up, which are not stored. */
final class OffsetVector extends LogVector {
  private final SegmentReader reader;

  OffsetVector(SegmentReader reader) {
    super(DataTypes.LongType);
    this.reader = reader;
  }

  @Override
  public long getLong(int row) {
    return reader.firstOffset + row;
  }
}
