"""From facts to transitions. Pure: what is stored and what was observed go in, changes come out.

========================  ======================================================================
:mod:`.drafts`            collects the changes of one pass, bundle by bundle, each with its events
:mod:`.machines`          what clouds say → claims: adopted, lost, gone, settled
:mod:`.nodes`             what engines say of nodes → nodes and claims: joined, silent, lost
:mod:`.runs`              what nodes say of ranks → runs and jobs: started, ended, requeued
:mod:`.sync`              the three above in order
:mod:`.effects`           the port calls that rows ask for and no receipt has answered yet
:mod:`.receipts`          what a call's answer changes
:mod:`.enact`             a plan's actions → changes
:mod:`.views`             the world after changes, and the Snapshot made of it
========================  ======================================================================
"""
