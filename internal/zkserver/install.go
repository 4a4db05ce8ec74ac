package zkserver

// Finding an installed ZooKeeper and the Java to run it.

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// ErrNotInstalled is returned if this machine has no ZooKeeper, or no Java to run it.
var ErrNotInstalled = errors.New("no ZooKeeper is installed")

// EnvHome names a directory with a ZooKeeper to run, with its libraries in lib: an unpacked
// download, or the output of scripts/zookeeper-home. Without it, Debian's packages are used.
const EnvHome = "ZOOKEEPER_HOME"

// debianJars is the directory of Debian's libzookeeper-java and libslf4j-java. The jar's manifest
// lists the rest of its class path, but no logger: without slf4j-simple the server would write no
// log.
const debianJars = "/usr/share/java"

// installation has everything that a server needs, apart from its configuration.
type installation struct {
	java      string
	classPath []string
}

// findInstallation looks for the ZooKeeper that EnvHome names, or else for Debian's packages.
func findInstallation() (installation, error) {
	java, err := findJava()
	if err != nil {
		return installation{}, err
	}
	classPath, err := ClassPath()
	if err != nil {
		return installation{}, err
	}
	return installation{java: java, classPath: classPath}, nil
}

// ClassPath returns the jars of the ZooKeeper that Start runs, and of further libraries for its
// clients, such as "curator-recipes". It uses a library from EnvHome if there is one, and otherwise
// from Debian's packages. If ZooKeeper or a library is missing, the error is ErrNotInstalled.
func ClassPath(libraries ...string) ([]string, error) {
	var jars []string
	if home := os.Getenv(EnvHome); home != "" {
		var err error
		if jars, err = HomeJars(home); err != nil {
			return nil, err
		}
	} else {
		jars = []string{filepath.Join(debianJars, "zookeeper.jar"), filepath.Join(debianJars, "slf4j-simple.jar")}
		// Debian's zookeeper.jar names neither in its manifest, and TLS needs both: a server the
		// first, a client the second.
		for _, netty := range []string{"netty-codec.jar", "netty-resolver.jar"} {
			if jar := filepath.Join(debianJars, netty); exists(jar) {
				jars = append(jars, jar)
			}
		}
	}
	for _, name := range libraries {
		if !slices.ContainsFunc(jars, func(jar string) bool { return isLibrary(jar, name) }) {
			jars = append(jars, filepath.Join(debianJars, name+".jar"))
		}
	}
	for _, jar := range jars {
		if _, err := os.Stat(jar); err != nil {
			return nil, fmt.Errorf("%w: there is no %s (Debian: apt-get install libzookeeper-java libslf4j-java libcurator-recipes-java), and %s does not name another place",
				ErrNotInstalled, jar, EnvHome)
		}
	}
	return jars, nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// HomeJars returns the jars in the home's lib: first the jars that ZooKeeper needs, then ZooKeeper,
// then the jars that need it. The order matters, because the manifests of Debian's jars name other
// jars by absolute paths, and so add the installed ZooKeeper, of another version.
func HomeJars(home string) ([]string, error) {
	jars, err := filepath.Glob(filepath.Join(home, "lib", "*.jar"))
	if err != nil {
		return nil, err
	}
	rank := func(jar string) int {
		switch {
		case isLibrary(jar, "zookeeper"):
			return 1
		case strings.HasPrefix(filepath.Base(jar), "curator-"):
			return 2
		}
		return 0
	}
	slices.SortStableFunc(jars, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	if !slices.ContainsFunc(jars, func(jar string) bool { return rank(jar) == 1 }) {
		return nil, fmt.Errorf("%w: %s is %s, and there is no zookeeper-*.jar in its lib", ErrNotInstalled, EnvHome, home)
	}
	return jars, nil
}

// version returns the version in the name of ZooKeeper's jar, or "" if the name has none.
func (in installation) version() string {
	for _, jar := range in.classPath {
		if isLibrary(jar, "zookeeper") {
			name, _ := strings.CutSuffix(filepath.Base(jar), ".jar")
			_, version, _ := strings.Cut(name, "-")
			return version
		}
	}
	return ""
}

// isLibrary reports whether the jar is the library name, with or without a version:
// zookeeper-3.9.3.jar is zookeeper, and zookeeper-jute-3.9.3.jar is not.
func isLibrary(jar, name string) bool {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(filepath.Base(jar), ".jar"), name)
	return ok && (rest == "" || len(rest) > 1 && rest[0] == '-' && '0' <= rest[1] && rest[1] <= '9')
}

// findJava prefers JAVA_HOME, as ZooKeeper's own scripts do.
func findJava() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java := filepath.Join(home, "bin", "java")
		if runtime.GOOS == "windows" {
			java += ".exe"
		}
		if _, err := os.Stat(java); err == nil {
			return java, nil
		}
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("%w: no java in JAVA_HOME or PATH (Debian: apt-get install openjdk-17-jre-headless)", ErrNotInstalled)
	}
	return java, nil
}

// command returns the server process for the configuration file in confDir. The options make the
// virtual machine start fast and remain small. forceSync=no: no test needs data to survive a crash
// of the machine. The prefix runs a command on the server's host.
func (in installation) command(front []string, confDir string, properties map[string]string) *exec.Cmd {
	args := []string{
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-XX:-UsePerfData",
		"-Dzookeeper.forceSync=no",
		"-Djava.net.preferIPv4Stack=true",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-Dorg.slf4j.simpleLogger.showThreadName=false",
		"-Dorg.slf4j.simpleLogger.showShortLogName=true",
	}
	for k, v := range properties {
		args = append(args, "-D"+k+"="+v)
	}
	classPath := append([]string{confDir}, in.classPath...)
	args = append(args,
		"-cp", strings.Join(classPath, string(os.PathListSeparator)),
		"org.apache.zookeeper.server.quorum.QuorumPeerMain",
		filepath.Join(confDir, "zoo.cfg"))
	args = append(append(append([]string(nil), front...), in.java), args...)
	return exec.Command(args[0], args[1:]...)
}

// The logging configuration of the downloads. They have one of two loggers in lib: without a
// configuration, one writes nothing and the other every detail. Debian's logger needs neither.
const (
	log4jProperties = `log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %c{1} - %m%n
`
	logbackXML = `<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %p %c{0} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="out"/></root>
</configuration>
`
)
