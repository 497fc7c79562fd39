package offsetlog.spark.source;

import java.io.IOException;
import offsetlog.segment.RandomAccess;
import offsetlog.segment.Unreadable;

/** The files of a task's segments, wherever the root is. */
interface SegmentFiles extends AutoCloseable {
  /** Whether the root in sight is the one that was planned with. */
  boolean isRoot();

  /** Whether it makes sense to try another one. */
  boolean isUsable();

  /** Those of the task's steps are opened in their order, though not each of them. */
  RandomAccess open(Steps.Step step) throws IOException, Unreadable;

  /** Bytes of the file last opened were those that were planned. */
  void succeeded();

  /** The file last opened could not be read, or had other bytes from its foot on. */
  void failed(Exception why);

  @Override
  void close();
}
