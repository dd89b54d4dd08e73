import { expect, test } from 'vitest'
import { describeTree } from './testing/describe-tree.ts'
import { changeTree, growTree, seededRandom } from './testing/random-tree.ts'
import { storeFixture, type TestSession } from './testing/store-fixture.ts'

const SEEDS = Array.from({ length: 6 }, (_, seed) => seed + 1)

const describeBoth = ({ roots }: TestSession) => [describeTree(roots.workspace), describeTree(roots.home)]

test.each(SEEDS)('a random tree comes back exactly as it was, seed %i', async (seed) => {
  const { session, emptySession, save, restore } = storeFixture()
  const random = seededRandom(seed)
  const [original, copy] = [session('original'), emptySession('copy')]
  growTree(original.roots.workspace, random, 40, seed % 3 === 0)
  growTree(original.roots.home, random, 20)
  const { manifest } = await save(original)
  const expected = describeBoth(original)
  await restore(manifest, copy)
  expect(describeBoth(copy)).toEqual(expected)
  expect((await save(copy)).manifest).toBe(manifest)
})

test.each(SEEDS)('each of two checkpoints keeps its own state of a changing tree, seed %i', async (seed) => {
  const { session, emptySession, save, restore } = storeFixture()
  const random = seededRandom(1000 + seed)
  const [original, changed] = [session('original'), emptySession('changed')]
  const grown = growTree(original.roots.workspace, random, 40)
  const first = await save(original)
  const before = describeBoth(original)
  // What was restored is known by its times at once: a change right after it must show all the same.
  await restore(first.manifest, changed)
  changeTree(changed.roots.workspace, grown, random)
  const second = await save(changed)
  const after = describeBoth(changed)
  const copies = [emptySession('first'), emptySession('second')] as const
  await restore(first.manifest, copies[0])
  await restore(second.manifest, copies[1])
  expect(describeBoth(copies[0])).toEqual(before)
  expect(describeBoth(copies[1])).toEqual(after)
})
