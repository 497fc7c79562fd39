package offsetlog.spark.source;

import java.util.List;
import offsetlog.segment.RandomAccess;
import offsetlog.segment.SegmentReader;
import offsetlog.spark.store.HadoopSettings;
import offsetlog.spark.store.StoreSegments;

/**
 * Those of a root in a store, through Hadoop's client.
 *
 * <p>Which root lies there is not asked: names of segments are random, and the plan has their sums.
 */
final class StoreFiles implements SegmentFiles {
  private final StoreSegments segments;

  StoreFiles(ReadPlan plan, List<Steps.Step> steps, HadoopSettings settings) {
    segments =
        new StoreSegments(
            plan.root(),
            settings,
            steps.stream().filter(Steps.Step::isSegment).map(StoreFiles::wanted).iterator());
  }

  private static StoreSegments.Wanted wanted(Steps.Step step) {
    SegmentReader.Ref ref = step.piece().segment();
    boolean isWhole = step.start() == ref.base() && step.end() == ref.end();
    return new StoreSegments.Wanted(ref.name(), ref.size(), ref.footBytes(), isWhole);
  }

  @Override
  public boolean isRoot() {
    return true;
  }

  @Override
  public boolean isUsable() {
    return segments.isUsable();
  }

  @Override
  public RandomAccess open(Steps.Step step) {
    return segments.open(step.piece().segment().name());
  }

  @Override
  public void succeeded() {
    segments.succeeded();
  }

  @Override
  public void failed(Exception why) {
    segments.failed(why);
  }

  @Override
  public void close() {
    segments.close();
  }
}
