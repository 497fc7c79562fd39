package offsetlog.spark.source;

import java.util.ArrayList;
import java.util.List;

/**
 * What a task does in turn: the pieces of its ranges in order, without those that filters leave out
 * and those that have no record.
 *
 * <p>Invariant: the steps of a range lie in it and ascend.
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
  }

  private Steps() {}

  static List<Step> of(ReadPlan plan, Narrowed narrowed) {
    List<Step> out = new ArrayList<>();
    for (int number = 0; number < plan.ranges().size(); number++) {
      ReadPlan.Range range = plan.ranges().get(number);
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
}
