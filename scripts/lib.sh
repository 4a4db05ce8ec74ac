# Sourced by the scripts here: asking the package manager, and saying what is going on.

say() { printf '%s\n' "$*"; }
warn() { printf '%s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

# as_root runs a command as root where that takes no password: as root, or with sudo that asks for none.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif have sudo && sudo -n true 2>/dev/null; then
		sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
	else
		return 1
	fi
}

# apt_install PACKAGE... installs Debian packages, and fails with a line that says why it may not. With
# --install-recommends in front, those they recommend too.
apt_install() {
	local recommends=--no-install-recommends
	if [ "$1" = --install-recommends ]; then
		recommends=$1
		shift
	fi
	if ! have apt-get; then
		warn "This machine has no apt-get. Install what these Debian packages hold: $*"
		return 1
	fi
	if ! as_root true; then
		warn "Not root, and sudo wants a password. Run: apt-get install $*"
		return 1
	fi
	say "Installing $*"
	export DEBIAN_FRONTEND=noninteractive
	local log
	log=$(mktemp)
	# A machine that has just started may be busy with packages of its own, for minutes.
	if as_root apt-get -o DPkg::Lock::Timeout=300 update -q >"$log" 2>&1 &&
		as_root apt-get -o DPkg::Lock::Timeout=300 install -q -y $recommends "$@" >>"$log" 2>&1; then
		rm -f "$log"
		return 0
	fi
	tail -n 20 "$log" >&2
	rm -f "$log"
	warn "apt-get could not install $*"
	return 1
}

# What the tests on real servers need. What ZOOKEEPER_HOME has goes before what is installed.
has_compiler() { have gcc || have clang || have cc; }
has_zookeeper() {
	{ have java || [ -x "${JAVA_HOME:-}/bin/java" ]; } && if [ -n "${ZOOKEEPER_HOME:-}" ]; then
		compgen -G "$ZOOKEEPER_HOME/lib/zookeeper-*.jar" >/dev/null
	else
		[ -f /usr/share/java/zookeeper.jar ] && [ -f /usr/share/java/slf4j-simple.jar ]
	fi
}
has_curator() {
	have javac && { [ -f /usr/share/java/curator-recipes.jar ] || compgen -G "${ZOOKEEPER_HOME:-}/lib/curator-recipes*.jar" >/dev/null; }
}

# docker_runs says whether there is a Docker daemon that answers.
docker_runs() { have docker && docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# cache is where downloads are kept that are not installed.
cache=${XDG_CACHE_HOME:-~/.cache}/zklock

# distribution is debian or ubuntu, codename bookworm or noble: whose packages this machine has.
distribution() { (. /etc/os-release && echo "$ID"); }
codename() { (. /etc/os-release && echo "$VERSION_CODENAME"); }

# mirror prints where the machine's own sources find its distribution, and with it other suites.
mirror() {
	local found
	found=$(apt-get update --print-uris 2>/dev/null | sed -n "s|^'\(.*\)/dists/$(codename)/InRelease' .*|\1|p" | awk 'NR == 1')
	[ -n "$found" ] && echo "$found"
}
