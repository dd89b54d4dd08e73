type Parts = Record<string, () => Promise<string[]>>

/** The parts of a benchmark that are named, all where none is, each under a heading of its own. */
export async function runParts(bench: string, parts: Parts, names: string[]): Promise<string[]> {
  const unknown = names.find((name) => !(name in parts))
  if (unknown !== undefined)
    throw new Error(`${bench} has no part "${unknown}". There are: ${Object.keys(parts).join(', ')}`)
  const lines: string[] = []
  for (const [name, part] of Object.entries(parts)) {
    if (names.length > 0 && !names.includes(name)) continue
    console.error(`${bench} ${name} …`)
    lines.push('', `## ${name}`, '', ...(await part()))
  }
  return lines
}
