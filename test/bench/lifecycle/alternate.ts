/** Runs each in turn, so that a busy moment of the machine meets all of them; the first rounds are not kept. */
export async function alternate<Name extends string>(
  { rounds, warmUp = 0 }: { rounds: number; warmUp?: number },
  runs: Record<Name, () => Promise<number>>,
): Promise<Record<Name, number[]>> {
  const names = Object.keys(runs) as Name[]
  const samples = Object.fromEntries(names.map((name) => [name, []])) as unknown as Record<Name, number[]>
  for (let round = 0; round < warmUp + rounds; round++) {
    for (const name of names) {
      const ms = await runs[name]()
      if (round >= warmUp) samples[name].push(ms)
    }
  }
  return samples
}
