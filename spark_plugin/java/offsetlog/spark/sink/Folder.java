package offsetlog.spark.sink;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** A folder of a root on a local disk. */
record Folder(Path path) {
  /**
   * The folder of that name in this one: made if it is not there, and no symbolic link. Its name is
   * durable once this one was synced.
   */
  Folder below(String name) throws IOException {
    Path child = path.resolve(name);
    try {
      Files.createDirectory(child);
    } catch (FileAlreadyExistsException there) {
      if (!Files.isDirectory(child, LinkOption.NOFOLLOW_LINKS)) {
        throw new FileSystemException(child.toString(), null, "Not a directory");
      }
    }
    return new Folder(child);
  }

  /** Makes the names in it durable. */
  void sync() throws IOException {
    try (FileChannel folder = FileChannel.open(path, StandardOpenOption.READ)) {
      folder.force(true);
    }
  }
}
