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
	if as_root apt-get update -q >"$log" 2>&1 &&
		as_root apt-get install -q -y $recommends "$@" >>"$log" 2>&1; then
		rm -f "$log"
		return 0
	fi
	tail -n 20 "$log" >&2
	rm -f "$log"
	warn "apt-get could not install $*"
	return 1
}

# docker_runs says whether there is a Docker daemon that answers.
docker_runs() { have docker && docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
