package zkserver

// Finding an installed ZooKeeper and the Java that runs it.

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrNotInstalled says that this machine has no ZooKeeper to run, or no Java to run it with.
var ErrNotInstalled = errors.New("no ZooKeeper is installed")

// debianJars is where Debian's libzookeeper-java and libslf4j-java put theirs. The jar's manifest
// names the rest of its class path, but no logger: without slf4j-simple the server would be mute.
const debianJars = "/usr/share/java"

// installation is what it takes to run a server, apart from its configuration.
type installation struct {
	java      string
	classPath []string
}

// findInstallation looks for ZOOKEEPER_HOME, then for Debian's packages.
func findInstallation() (installation, error) {
	java, err := findJava()
	if err != nil {
		return installation{}, err
	}
	if home := os.Getenv("ZOOKEEPER_HOME"); home != "" {
		lib := filepath.Join(home, "lib")
		if jars, _ := filepath.Glob(filepath.Join(lib, "zookeeper-*.jar")); len(jars) == 0 {
			return installation{}, fmt.Errorf("%w: ZOOKEEPER_HOME is %s, and there is no zookeeper-*.jar in its lib", ErrNotInstalled, home)
		}
		return installation{java: java, classPath: []string{filepath.Join(lib, "*")}}, nil
	}
	jar := filepath.Join(debianJars, "zookeeper.jar")
	if _, err := os.Stat(jar); err != nil {
		return installation{}, fmt.Errorf("%w: ZOOKEEPER_HOME is not set and there is no %s (Debian: apt-get install libzookeeper-java)", ErrNotInstalled, jar)
	}
	return installation{java: java, classPath: []string{jar, filepath.Join(debianJars, "slf4j-simple.jar")}}, nil
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

// command is the server process for the configuration file in confDir. The virtual machine is set
// to start fast and stay small. forceSync=no: what survives a crash of the machine is not tested.
// The words in front are what it takes to run a command on the server's host.
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

// The logging configuration of the downloads, which have one logger or the other in lib: without it
// one writes nothing and the other every detail. Debian's needs neither.
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
