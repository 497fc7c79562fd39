package offsetlog.spark.source;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import offsetlog.segment.LocalFile;
import offsetlog.segment.RandomAccess;
import offsetlog.segment.Unreadable;

/**
 * Those of a root on this machine's disks.
 *
 * <p>Invariant: no link below the root is followed.
 */
final class LocalFiles implements SegmentFiles {
  private static final String ROOT_FILE = "_offsetlog.json";
  private static final int MAX_ROOT_FILE = 1 << 16;
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Path root;
  private final String rootId;
  private final Map<Path, Boolean> folders = new HashMap<>();

  LocalFiles(ReadPlan plan) {
    root = Path.of(plan.root());
    rootId = plan.rootId();
  }

  @Override
  public boolean isRoot() {
    try {
      Path file = root.resolve(ROOT_FILE);
      if (Files.isSymbolicLink(file) || Files.size(file) > MAX_ROOT_FILE) {
        return false;
      }
      JsonNode said = JSON.readTree(Files.readAllBytes(file));
      return said.path("format").asInt() == 1 && said.path("id").asText().equals(rootId);
    } catch (IOException error) {
      return false;
    }
  }

  @Override
  public boolean isUsable() {
    return true;
  }

  @Override
  public RandomAccess open(Steps.Step step) throws IOException, Unreadable {
    String name = step.piece().segment().name();
    Path path = root.resolve(name);
    if (!folders.computeIfAbsent(path.getParent(), this::isPlain)) {
      throw new Unreadable(name + " lies behind a link");
    }
    return new LocalFile(path);
  }

  private boolean isPlain(Path folder) {
    try {
      Path real = root.toRealPath();
      return folder.toRealPath().equals(real.resolve(root.relativize(folder)))
          && Files.isDirectory(folder, LinkOption.NOFOLLOW_LINKS);
    } catch (IOException error) {
      return false;
    }
  }

  @Override
  public void succeeded() {}

  @Override
  public void failed(Exception why) {}

  @Override
  public void close() {}
}
