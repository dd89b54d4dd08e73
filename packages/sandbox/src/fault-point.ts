let armed: { name: string; passes: number } | undefined

/** For tests: the process kills itself when it reaches this point, `name`, or the n-th time, `name:n`. */
export function armFaultPoint(spec: string | undefined): void {
  const [, name, count] = /^([\w-]+)(?::(\d+))?$/.exec(spec ?? '') ?? []
  armed = name === undefined ? undefined : { name, passes: Number(count ?? 1) }
}

/** A step after which a crash would leave something half done. Costs nothing unless a test has armed it. */
export function faultPoint(name: string): void {
  if (armed?.name !== name) return
  armed.passes--
  if (armed.passes <= 0) process.kill(process.pid, 'SIGKILL')
}
