import { existsSync } from 'node:fs'
import { isRoot } from './finding.ts'

const PACKAGE_MANAGERS = [
  ['/usr/bin/apt-get', (name: string) => `${sudo()}apt-get update && ${sudo()}apt-get install -y ${name}`],
  ['/usr/bin/dnf', (name: string) => `${sudo()}dnf install -y ${name}`],
  ['/usr/bin/pacman', (name: string) => `${sudo()}pacman -S --noconfirm ${name}`],
  ['/sbin/apk', (name: string) => `${sudo()}apk add ${name}`],
] as const

/** How a package is had here; the name is the same everywhere. */
export function installCommand(name: string): string {
  const manager = PACKAGE_MANAGERS.find(([path]) => existsSync(path))
  return manager ? manager[1](name) : `Install ${name} with the package manager of this system`
}

/** What goes before a command that only root may run. */
export const sudo = () => (isRoot() ? '' : 'sudo ')
