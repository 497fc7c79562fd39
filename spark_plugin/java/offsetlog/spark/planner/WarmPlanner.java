package offsetlog.spark.planner;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * Starts the Python that plans a stream as a fork of one that has loaded everything, where Spark
 * would start one from an archive for each query. See {@code runtime/planner_launch.py}.
 *
 * <p>Spark is told of another program as its Python: a script that runs the real one with our
 * launcher. So its own code starts, watches and ends the planner. Only planners are started so,
 * which run beside the driver; tasks run the Python that they always ran.
 */
public final class WarmPlanner {
  private static final Logger LOG = LoggerFactory.getLogger(WarmPlanner.class);
  private static final String PYTHON_PATH = "PYTHONPATH";

  /** The longest name that a Unix socket may have, and some room. */
  private static final int LONGEST_NAME = 100;

  private static final String LAUNCH =
      "import importlib.util as u, runpy; runpy.run_path("
          + "u.find_spec('pyspark_offsetlog').submodule_search_locations[0] "
          + "+ '/runtime/planner_launch.py', run_name='__main__')";

  /** Those of this process, by the Python and the path that it is started with. */
  private static final Map<String, Path> LAUNCHERS = new HashMap<>();

  /** Held, since a server ends with its standard input. */
  private static final List<Process> SERVERS = new ArrayList<>();

  private WarmPlanner() {}

  /** The stream that {@code start} makes of the source, whose planner it starts meanwhile. */
  public static MicroBatchStream stream(
      PythonDataSourceV2 source, Function<PythonDataSourceV2, MicroBatchStream> start) {
    Starting starting = new Starting(source);
    try {
      return start.apply(starting);
    } finally {
      starting.isStarting = false;
    }
  }

  /** A source whose planner is started by our launcher, and all else by its own Python. */
  private static final class Starting extends PythonDataSourceV2 {
    private final PythonDataSourceV2 plain;
    private final UserDefinedPythonDataSource launched;
    private boolean isStarting = true;

    Starting(PythonDataSourceV2 plain) {
      this.plain = plain;
      launched = launched(plain.source());
    }

    @Override
    public UserDefinedPythonDataSource source() {
      return isStarting ? launched : plain.source();
    }

    /** Made by a Python that runs already. */
    @Override
    public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
        String name, CaseInsensitiveStringMap options, Option<StructType> schema) {
      return plain.getOrCreateDataSourceInPython(name, options, schema);
    }
  }

  private static UserDefinedPythonDataSource launched(UserDefinedPythonDataSource plain) {
    PythonFunction function = plain.dataSourceCls();
    Path launcher = launcher(function);
    if (launcher == null) {
      return plain;
    }
    return new UserDefinedPythonDataSource(
        new SimplePythonFunction(
            function.command(),
            function.envVars(),
            function.pythonIncludes(),
            launcher.toString(),
            function.pythonVer(),
            function.broadcastVars(),
            function.accumulator()));
  }

  /** The launcher for a Python; null where there can be none. */
  private static Path launcher(PythonFunction function) {
    String path =
        Stream.of(
                PythonUtils.sparkPythonPath(),
                Objects.toString(function.envVars().get(PYTHON_PATH), ""),
                Objects.toString(System.getenv(PYTHON_PATH), ""))
            .filter(part -> !part.isEmpty())
            .collect(Collectors.joining(File.pathSeparator));
    String python = function.pythonExec();
    synchronized (LAUNCHERS) {
      // Who cleans temporary folders may take it away from a JVM that lives for days.
      return LAUNCHERS.compute(
          python + "\0" + path,
          (key, known) -> known != null && Files.exists(known) ? known : start(python, path));
    }
  }

  /** Starts the server of planners, which ends with this process. */
  private static Path start(String python, String path) {
    try {
      Path folder = Files.createTempDirectory("offsetlog-");
      folder.toFile().deleteOnExit();
      Path socket = folder.resolve("planners");
      if (socket.toString().length() > LONGEST_NAME) {
        return null;
      }
      Path script = folder.resolve("python");
      script.toFile().deleteOnExit();
      Files.writeString(
          script,
          String.format(
              "#!/bin/sh\nexec %s -c \"%s\" %s \"$@\"\n",
              quoted(python), LAUNCH, quoted(socket.toString())));
      Files.setPosixFilePermissions(script, PosixFilePermissions.fromString("rwx------"));
      ProcessBuilder server = new ProcessBuilder(script.toString(), "--serve");
      server.environment().put(PYTHON_PATH, path);
      // Arithmetic of its own is of no use to it, and threads are not to be forked.
      server.environment().put("OPENBLAS_NUM_THREADS", "1");
      server.redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD);
      SERVERS.add(server.start());
      return script;
    } catch (IOException | UnsupportedOperationException | SecurityException refused) {
      LOG.info("Each stream starts a Python of its own: {}", refused.toString());
      return null;
    }
  }

  private static String quoted(String text) {
    return "'" + text.replace("'", "'\\''") + "'";
  }
}
