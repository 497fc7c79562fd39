package offsetlog.spark.source;

import java.util.ArrayList;
import java.util.List;
import offsetlog.segment.SegmentReader;

/**
 * What a task does in turn: the pieces of its ranges in order, without those that filters leave out
 * and those that have no record.
 *
 * <p>Invariants: the pieces of a range cover it, each offset once, or there are no steps but an
 * error; and the steps of a range lie in it and ascend.
 */
final class Steps {
  /**
   * Offsets {@code [start, end)} of a range, the piece of the plan in which they lie (null: Python
   * looks for it), and the range's number in the plan.
   */
  record Step(int number, ReadPlan.Range range, ReadPlan.Piece piece, long start, long end) {
    boolean isSegment() {
      return piece != null && piece.segment() != null;
    }

    /** How many records its segment has in it; -1: only its offsets tell. */
    long records() {
      SegmentReader.Ref ref = piece.segment();
      boolean isWhole = start == ref.base() && end == ref.end();
      return isWhole ? ref.records() : ref.hasGaps() ? -1 : end - start;
    }
  }

  private Steps() {}

  static List<Step> of(ReadPlan plan, Narrowed narrowed) {
    List<Step> out = new ArrayList<>();
    for (int number = 0; number < plan.ranges().size(); number++) {
      ReadPlan.Range range = plan.ranges().get(number);
      check(range);
      long low = Math.max(range.start(), narrowed.low());
      long high = Math.min(range.end(), narrowed.high());
      if (low >= high || !narrowed.hasPartition(range.topic(), range.partition())) {
        continue;
      }
      if (range.pieces().isEmpty()) {
        out.add(new Step(number, range, null, low, high));
      }
      for (ReadPlan.Piece piece : range.pieces()) {
        long start = Math.max(low, piece.start());
        long end = Math.min(high, piece.end());
        boolean hasAny = start < end && !piece.isEmpty();
        if (hasAny && narrowed.hasTimes(piece.leastTime(), piece.greatestTime())) {
          out.add(new Step(number, range, piece, start, end));
        }
      }
    }
    return out;
  }

  /** Without pieces Python looks where the records of a range lie, and covers it or says why not. */
  private static void check(ReadPlan.Range range) {
    long reached = range.start();
    for (ReadPlan.Piece piece : range.pieces()) {
      if (piece.start() > reached) {
        throw wrong(range, "no file for offsets", reached, piece.start());
      }
      if (piece.start() < reached) {
        throw wrong(range, "more than one file for offsets", piece.start(), reached);
      }
      if (piece.end() <= reached || piece.end() > range.end() || !piece.isInFile()) {
        throw wrong(range, "a file that does not have offsets", reached, piece.end());
      }
      reached = piece.end();
    }
    if (reached < range.end() && !range.pieces().isEmpty()) {
      throw wrong(range, "no file for offsets", reached, range.end());
    }
  }

  private static IllegalStateException wrong(
      ReadPlan.Range range, String what, long start, long end) {
    return new IllegalStateException(
        String.format(
            "The plan of %s-%d from offset %d to %d names %s %d to %d. Nothing of it was read. Read"
                + " again; if that does not help, run 'offsetlog verify' on the topic.",
            range.topic(), range.partition(), range.start(), range.end(), what, start, end));
  }
}
