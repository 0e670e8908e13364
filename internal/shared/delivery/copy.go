// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"cmp"
	"path"

	corev1 "k8s.io/api/core/v1"
)

// copyScript is what upstream asks of a kernel module image: a shell, mkdir and cp. $1 is the
// directory below which lib/modules lies, $2 the kernel, $3 the firmware directory or nothing.
// Values are arguments, never part of the text.
//
// What links lead to may lie elsewhere in the image, so it is copied in their place, as package
// imagefs has them lead. A link that leads nowhere, or to a directory that it is in (above), is
// copied itself: the export refuses it by name.
const copyScript = `set -e
own=$1/lib/modules/$2
take() (
  from=$1 to=$2 above=$3$(cd -P "$1" && pwd -P):
  mkdir -p "$to"
  set --
  for f in "$from"/* "$from"/.[!.]* "$from"/..?*; do
    if [ -h "$f" ]; then
      case $f in "$own/build" | "$own/source" | "$own/host") continue ;; esac
      if [ -d "$f" ]; then
        case $above in *":$(cd -P "$f" && pwd -P):"*) cp -RPf "$f" "$to/"; continue ;; esac
      elif ! [ -f "$f" ]; then
        cp -RPf "$f" "$to/"
      fi
    fi
    if [ -d "$f" ]; then
      take "$f" "$to/${f##*/}" "$above"
    elif [ -f "$f" ]; then
      set -- "$@" "$f"
    fi
    if [ $# -ge 100 ]; then
      cp "$@" "$to/"
      set --
    fi
  done
  [ $# -eq 0 ] || cp "$@" "$to/"
)
bring() {
  if [ -d "$1" ]; then
    take "$1" "/image$1" :
  else
    mkdir -p "/image${1%/*}"
    cp -RPf "$1" "/image$1"
  fi
}
bring "$own"
[ -z "$3" ] || bring "$3"`

func copyContainer(r *Request) corev1.Container {
	modprobe := &r.Config.Modprobe
	args := []string{copyScript, "copy", path.Join("/", modprobe.DirName), r.Config.KernelVersion}
	if modprobe.FirmwarePath != "" {
		args = append(args, path.Join("/", modprobe.FirmwarePath))
	}
	return corev1.Container{
		Name:            copyName,
		Image:           cmp.Or(r.Image, r.Config.ContainerImage),
		ImagePullPolicy: pullPolicy(r),
		Command:         []string{"/bin/sh", "-c"},
		Args:            args,
		Resources:       resources(),
		SecurityContext: Restricted(),
		VolumeMounts:    []corev1.VolumeMount{{Name: imageVolume, MountPath: imageDir}},
	}
}
